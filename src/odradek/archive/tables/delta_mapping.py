"""The first version of a Delta table whose columns have names that Delta takes only with column mapping.

Delta on Spark refuses to append to a table without it where a name has a blank or one of `,;{}()=`, a tab or a line end. Here
each column is called in the files what it is called in the table: readers that know nothing of mapping find it, too.
`deltalake` writes to such a table but does not make one. Source: Delta's protocol, "Column Mapping" and "Protocol Evolution".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.object_store import small_objects
from odradek.archive.tables.delta_log import LOG
from odradek.model.lazy import lazy
from odradek.runtime.real import SystemClock, SystemEntropy

if TYPE_CHECKING:
    import deltalake
else:
    deltalake = lazy("deltalake")

_SPECIAL: Final = frozenset(" ,;{}()\n\t=")
_FEATURES: Final = ("appendOnly", "columnMapping", "invariants")
_READ: Final = ("columnMapping",)
_WITHOUT_ZONE: Final = "timestampNtz"


def needs_mapping(schema: pa.Schema) -> bool:
    """Tells whether a column, or a field within one, has a name that Delta takes only with column mapping."""
    return any(not _SPECIAL.isdisjoint(name) for field in schema for name in _names(field))


def create_mapped(
    location: ArchiveLocation, schema: pa.Schema, partition_by: Sequence[str], settings: Mapping[str, str]
) -> None:
    """Makes the table, unless another writer has made one meanwhile."""
    fields = json.loads(deltalake.Schema.from_arrow(schema).to_json())
    ids = count(1)
    _map(fields, ids)
    now_ms = SystemClock().wall_ms()
    actions = [
        {"commitInfo": {"timestamp": now_ms, "operation": "CREATE TABLE"}},
        {"protocol": _protocol(json.dumps(fields))},
        {
            "metaData": {
                "id": str(SystemEntropy().uuid()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(fields),
                "partitionColumns": list(partition_by),
                "configuration": {
                    **settings,
                    "delta.columnMapping.mode": "name",
                    "delta.columnMapping.maxColumnId": str(next(ids) - 1),
                },
                "createdTime": now_ms,
            }
        },
    ]
    content = "".join(json.dumps(action) + "\n" for action in actions)
    small_objects(location).put_if_absent(f"{LOG}/{0:020}.json", content.encode())


def _protocol(fields: str) -> dict[str, object]:
    if "timestamp_ntz" not in fields:
        return {"minReaderVersion": 2, "minWriterVersion": 5}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [*_READ, _WITHOUT_ZONE],
        "writerFeatures": [*_FEATURES, _WITHOUT_ZONE],
    }


def _map(kind: object, ids: Iterator[int]) -> None:
    """Gives each field of a type of Delta its id and its name in files."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        field["metadata"] = {
            "delta.columnMapping.id": next(ids),
            "delta.columnMapping.physicalName": field["name"],
        }
        _map(field["type"], ids)
    for part in ("elementType", "keyType", "valueType"):
        _map(kind.get(part), ids)


def _names(field: pa.Field) -> Iterator[str]:
    yield field.name
    yield from _names_within(field.type)


def _names_within(kind: pa.DataType) -> Iterator[str]:
    """Yields the names of fields of structs; items of lists and maps have none that Delta looks at."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _names(field)
    elif pa.types.is_map(kind):
        yield from _names_within(kind.key_type)
        yield from _names_within(kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _names_within(kind.value_type)
