"""The schema of a topic's keys and values, as DDL: one bare type (`BIGINT`), or fields (`id BIGINT, name STRING`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from odradek.model.errors import ConfigError
from odradek.values.ddl import DdlError, parsed_ddl, quoted

FORMATS: Final = ("json", "kafka", "csv")


class SchemaFormat(Protocol):
    """A format that has a schema of its own. `ddl`: the type of a value, or fields. `is_record`: it has fields."""

    name: str
    ddl: str

    @property
    def is_record(self) -> bool: ...
    def decode(self, data: bytes) -> Any:
        """Decodes bytes. ValueError for other data. Dicts for records; times may be datetimes or microseconds."""

    def encode(self, value: object) -> bytes | None:
        """Encodes a value; None: the record has none. ValueError for a value that does not fit."""


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
    def text(self) -> str:
        """The schema in readable form: a bare type, or the fields."""
        return self.fields[0][1] if self.bare else ", ".join(f"{name} {kind}" for name, kind in self.fields)


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
        return _declared("BINARY" if text is None else text, role, form)
    if text is not None:
        raise ConfigError(f"{role}={text!r} and the schema of {form.name}: give one of them")
    return _declared(form.ddl, role, form)


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


def checked_schema(text: Any, method: str) -> None:
    """Raises ConfigError for a `schema=` that is absent, no text, or no DDL."""
    checked_ddl(text, "schema")
    if text is None:
        raise ConfigError(
            f"{method}: schema= is the type of the result, such as 'BIGINT' or 'n INT, name STRING'"
        )
    _declared(text, "schema", "json")


def _declared(text: str, role: str, form: Format) -> DeclaredSchema:
    try:
        ddl = parsed_ddl(text)
    except DdlError as error:
        raise ConfigError(
            f"{role}={text!r}: {error}; write a type, or fields such as 'id BIGINT, name STRING'"
        ) from None
    if ddl.fields is None:
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
    return DeclaredSchema(fields=fields, bare=role == "key" and len(fields) == 1, format=form)
