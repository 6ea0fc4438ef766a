"""The schema of a topic's keys and values, as DDL: one bare type (`BIGINT`), or fields (`id BIGINT, name STRING`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from odradek.model.errors import ConfigError
from odradek.values.ddl import DdlError, parsed_ddl, quoted
from odradek.values.formats.kafka_format import KAFKA_NUMBERS
from odradek.values.formats.record_format import has_other_keys
from odradek.values.formats.schema_format import SchemaFormat

FORMATS: Final = ("json", "kafka", "csv")
_OF_KAFKA: Final = (*KAFKA_NUMBERS, "STRING", "BYTES")
_NOT_READ: Final = {"json": ("TIME", "VOID"), "csv": ("VARCHAR", "CHAR", "CHARACTER")}
"""Types that Spark does not read in a format, by their first word: bare ones in JSON."""
_NOT_IN_CSV: Final = ("ARRAY", "MAP", "STRUCT", "BYTES", "NULL", "VARIANT")


Format: TypeAlias = str | SchemaFormat
"""One of FORMATS, or one with a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSchema:
    """A schema as the user declares it.

    `fields`: (name, type) as the user wrote them. `bare`: one value without a name; its column is called `key` or
    `value`.
    """

    fields: tuple[tuple[str, str], ...]
    bare: bool
    format: Format = "json"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.fields)

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self.fields)

    @property
    def typed_fields(self) -> list[TypedField]:
        """The fields with their types, without NOT NULL and comments."""
        fields = parsed_ddl(self.ddl).fields or ()
        return [
            TypedField(field.name, field.kind, None if field.type is None else field.type.kind)
            for field in fields
        ]

    @property
    def text(self) -> str:
        """The schema in readable form: a bare type, or the fields."""
        return self.fields[0][1] if self.bare else ", ".join(f"{name} {kind}" for name, kind in self.fields)


def is_bare(fields: Sequence[TypedField], role: str) -> bool:
    """Tells whether a written key or value has nothing around it: a key of one column, and a value with the name `value`."""
    return len(fields) == 1 and (role == "key" or fields[0].name == "value")


class TypedField(NamedTuple):
    """A field of a key or a value.

    `ddl`: its type as text. `kind`: the kind of its `SqlType`; None for a type that only Spark has.
    """

    name: str
    ddl: str
    kind: str | None


def check_holds(
    form: Format, fields: Sequence[TypedField], role: str, *, bare: bool, where: str = ""
) -> None:
    """Raises ConfigError for fields that a format cannot hold. `where`: the beginning of the error."""
    names = [field.name for field in fields]
    if not isinstance(form, str):
        known = [field.name for field in parsed_ddl(form.ddl).fields or ()]
        strange = [name for name in names if name not in known]
        if form.is_record and strange:
            raise ConfigError(
                f"{where}{form.name} has no field {', '.join(strange)}; it has {', '.join(known)}"
            )
        if not form.is_record and len(names) != 1:
            raise ConfigError(f"{where}{form.name} is one bare value, and the columns are {', '.join(names)}")
    elif form == "kafka":
        if not bare:
            raise ConfigError(
                f"{where}{role}_format='kafka' is for one bare value; {role} has {', '.join(names)}: write"
                f" {role}_format='json'"
            )
        (field,) = fields
        if field.kind not in _OF_KAFKA:
            raise ConfigError(
                f"{where}{role}_format='kafka' holds what a serializer of Kafka has: STRING, BINARY, SMALLINT, INT, BIGINT,"
                f" FLOAT and DOUBLE, not {field.ddl}: write {role}_format='json'"
            )
    elif form == "csv":
        for field in fields:
            if (field.kind or field.ddl.upper()) in _NOT_IN_CSV:
                raise ConfigError(
                    f"{where}{role}_format='csv' holds no {field.ddl}, which {field.name} is: write {role}_format='json'"
                )


def checked_format(form: Format, role: str) -> Format:
    """Returns the format; ConfigError for an unknown one."""
    if isinstance(form, str) and form not in FORMATS:
        raise ConfigError(
            f"{role}_format {form!r} does not exist; there are {', '.join(FORMATS)}, and Avro(…) and Protobuf(…) with a file"
        )
    if isinstance(form, type) or not (isinstance(form, str) or hasattr(form, "ddl")):
        shown = f"the class {form.__name__}" if isinstance(form, type) else f"{form!r:.80}"
        raise ConfigError(
            f"{role}_format is one of {', '.join(FORMATS)}, or a format with a file such as Avro('order.avsc'), not {shown}"
        )
    return form


def declared(text: str | None, role: str, form: Format = "json") -> DeclaredSchema:
    """Parses DDL. `role` is key or value: the name of a bare column. A format with a schema needs no text.

    ConfigError for what is no DDL, an unknown format, and a schema that is there twice.
    """
    checked_format(form, role)
    checked_ddl(text, role)
    if isinstance(form, str):
        schema = parsed_schema("BINARY" if text is None else text, role, form)
        _check_reads(schema, role)
        return schema
    if text is not None:
        raise ConfigError(f"{role}={text!r} and the schema of {form.name}: give one of them")
    return parsed_schema(form.ddl, role, form)


_DDL_OF: Final = {
    "str": "STRING",
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "bytes": "BINARY",
    "date": "DATE",
    "datetime": "TIMESTAMP",
    "Decimal": "DECIMAL(18, 2)",
}
"""Types of Python by name, and what to write."""


def checked_ddl(text: object, role: str) -> None:
    """Raises ConfigError for what is no text, such as a type of Python or of PySpark. None: nothing was given."""
    if text is None or isinstance(text, str):
        return
    if isinstance(text, type):
        wanted = _DDL_OF.get(text.__name__)
        hint = f"write {role}='{wanted}'" if wanted else "write its fields, such as 'id BIGINT, name STRING'"
        raise ConfigError(f"{role}= is DDL, not the type {text.__name__}: {hint}")
    of_pyspark = getattr(text, "simpleString", None)
    shown = (
        f": write {role}={of_pyspark()!r}" if callable(of_pyspark) else ", such as 'id BIGINT, name STRING'"
    )
    raise ConfigError(f"{role}= is DDL, not {text!r:.80}{shown}")


def checked_schema(text: object, method: str) -> None:
    """Raises ConfigError for a `schema=` that is absent, no text, or no DDL."""
    checked_ddl(text, "schema")
    if not isinstance(text, str):
        raise ConfigError(
            f"{method}: schema= is the type of the result, such as 'BIGINT' or 'n INT, name STRING'"
        )
    parsed_schema(text, "schema")


def _check_reads(schema: DeclaredSchema, role: str) -> None:
    """Raises ConfigError for fields that Spark does not read from text in this format."""
    if not isinstance(schema.format, str):
        return
    for name, kind in schema.fields:
        word = re.match(r"[A-Za-z]*", kind)[0].upper()  # type: ignore[index]
        unread = word in _NOT_READ.get(schema.format, ()) and (schema.format == "csv" or schema.bare)
        if schema.format == "json" and schema.bare:
            simple = parsed_ddl(kind).type
            unread |= simple is not None and has_other_keys(simple)
        if unread:
            raise ConfigError(
                f"{role}_format={schema.format!r} reads no {kind}, which {name} is: declare it as STRING, and CAST it"
            )


def parsed_schema(text: str, role: str, form: Format = "json") -> DeclaredSchema:
    """Parses DDL, such as the schema that a processor is given. ConfigError for what is none, and for what the format cannot
    hold.
    """
    try:
        ddl = parsed_ddl(text)
    except DdlError as error:
        raise ConfigError(
            f"{role}={text!r}: {error}; write a type, or fields such as 'id BIGINT, name STRING'"
        ) from None
    if ddl.fields is None:
        kind = None if ddl.type is None else ddl.type.kind
        check_holds(form, [TypedField(role, ddl.kind, kind)], role, bare=True)
        return DeclaredSchema(fields=((role, ddl.kind),), bare=True, format=form)
    names = [field.name.lower() for field in ddl.fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{role}={text!r} has the column {name} twice")
        if name.startswith("__") or not name:
            raise ConfigError(
                f"{role}={text!r}: names that begin with __ are not for columns, nor is an empty one"
            )
    fields = tuple((field.name, f"{field.kind} {field.rest}".rstrip()) for field in ddl.fields)
    schema = DeclaredSchema(fields=fields, bare=role == "key" and len(fields) == 1, format=form)
    check_holds(form, schema.typed_fields, role, bare=schema.bare)
    return schema
