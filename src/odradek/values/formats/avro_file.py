"""Avro: values after a schema in a file. Types are Spark's for Avro; what Spark has no type for is refused."""

from __future__ import annotations

from pathlib import Path

from odradek.model.errors import ConfigError
from odradek.model.public import public
from odradek.values.errors import SqlError
from odradek.values.formats.avro_schemas import SPARK_TYPES, avro_type, parsed_schema
from odradek.values.formats.avro_values import AvroCodec
from odradek.values.formats.framing import framing
from odradek.values.formats.schema_files import read_schema_file


@public("odradek.streams")
class Avro:
    """The format of records in Avro, by a schema file.

    `schema_file`: the schema as JSON (.avsc). `confluent`: a magic byte and a schema id precede the data;
    `schema_id`: the id to write, and the only one to read.
    """

    def __init__(
        self, schema_file: str | Path, *, confluent: bool = False, schema_id: int | None = None
    ) -> None:
        self.name = f"Avro of {Path(schema_file).name}"
        self._framing = framing(confluent, schema_id)
        self._file = str(schema_file)
        self._schema = read_schema_file(schema_file)
        self._codec: AvroCodec | None = None
        try:
            self._type = avro_type(parsed_schema(self._schema, self._file), SPARK_TYPES)
        except ModuleNotFoundError:
            raise ConfigError("Avro needs fastavro: pip install 'odradek[formats]'") from None
        except SqlError as error:
            text = str(error)
            raise ConfigError(text if self._file in text else f"{self._file}: {text}") from None
        self.is_record = self._type.kind == "STRUCT"
        self.ddl = self._type.fields_ddl if self.is_record else self._type.ddl

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_codec": None}  # tasks make it again

    def decode(self, data: bytes) -> object:
        """Returns the value: a dict for a record. Raises ValueError for other data."""
        body = data if self._framing is None else self._framing.payload(data)
        return self._ready().decode(body, is_all=True)

    def encode(self, value: object) -> bytes:
        """Returns the bytes of a value. Raises ValueError for a value that does not fit the schema."""
        return self._ready().encode(value, b"" if self._framing is None else self._framing.head())

    def _ready(self) -> AvroCodec:
        if self._codec is None:
            self._codec = AvroCodec(parsed_schema(self._schema, self._file), self._type)
        return self._codec
