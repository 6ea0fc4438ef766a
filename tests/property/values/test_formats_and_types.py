"""A statement is refused where its formats cannot hold its columns; otherwise their values are written and read again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest
from tests.property.values.generated import SIMPLE

from odradek.sql.applying import apply
from odradek.sql.language import parse_one
from odradek.sql.metastore.catalog import SqlCatalog, SqlSource
from odradek.sql.planning.building import source_formats
from odradek.sql.queries.schema_rows import SchemaRowCodec
from odradek.values.errors import SqlError
from odradek.values.formats import FORMAT_NAMES
from odradek.values.types import STRING, SqlType, array_of, decimal_of, map_of, struct_of_fields

_KINDS: Final = (*(SqlType(kind=kind) for kind in SIMPLE), decimal_of(5, 2))
_SHAPES: Final = (
    array_of,
    lambda kind: map_of(STRING, kind),
    lambda kind: map_of(kind, STRING),
    lambda kind: struct_of_fields([("X", kind)]),
    lambda kind: array_of(array_of(kind)),
    lambda kind: array_of(map_of(STRING, kind)),
    lambda kind: array_of(struct_of_fields([("X", array_of(kind))])),
    lambda kind: struct_of_fields([("X", map_of(kind, array_of(kind)))]),
)
TYPES: Final = (*_KINDS, *(shape(kind) for shape in _SHAPES for kind in _KINDS))
_SAMPLES: Final = {
    "BOOLEAN": True,
    "DOUBLE": 0.5,
    "STRING": 'é, "x"',
    "BYTES": b"\x00\xff",
    "DECIMAL": Decimal("-1.25"),
}


def sample(kind: SqlType) -> Any:
    """A value of a type, as rows have it."""
    match kind.kind:
        case "ARRAY":
            return [sample(kind.element)]
        case "MAP":
            return {"k": sample(kind.element)}
        case "STRUCT":
            return {name: sample(part) for name, part in kind.fields}
    return _SAMPLES.get(kind.kind, 7)


def declare(form: str, kind: SqlType, role: str) -> SqlSource | SqlError:
    """Returns the source that a statement makes, or its refusal."""
    column = f"v {kind} KEY, w INT" if role == "key" else f"v {kind}"
    other = ", VALUE_FORMAT='JSON'" if role == "key" else ""
    properties = f"KAFKA_TOPIC='t', {role}_FORMAT='{form}', {role}_SCHEMA_ID=1{other}".upper()
    statement = parse_one(f"CREATE STREAM s ({column}) WITH ({properties});")
    try:
        return apply(SqlCatalog(), statement, 1).catalog.sources["S"]
    except SqlError as error:
        return error


@pytest.mark.parametrize("form", FORMAT_NAMES)
@pytest.mark.parametrize("role", ["key", "value"])
def test_every_type_is_refused_by_the_statement_or_held(form: str, role: str) -> None:
    refused, held, different = set(), set(), []
    for kind in TYPES:
        source = declare(form, kind, role)
        if isinstance(source, SqlError):
            assert source.position is not None, f"{kind}: {source}"
            assert "\n" not in source.message
            refused.add(str(kind))
            continue
        held.add(str(kind))
        source_formats(source)  # as a query in Spark has them
        info = source.key_format if role == "key" else source.value_format
        codec = SchemaRowCodec((("V", kind),), info, is_key=role == "key")
        value = sample(kind)
        data = codec.encode([value])
        if data is None or codec.decode(data) != [value]:
            different.append((str(kind), value, data))
    assert different == []
    simple = {str(kind) for kind in _KINDS}
    match form:
        case "NONE":
            assert held == set()
        case "KAFKA":
            assert held == {"INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES"}
        case "DELIMITED":
            assert held == simple
        case _:
            assert simple <= held
            assert {f"MAP<{kind}, STRING>" for kind in simple - {"STRING"}} <= refused
