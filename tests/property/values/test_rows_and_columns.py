"""A record means the same row by row (the server) and as columns (a query in Spark), and rows and columns are written the same.

`make values ROUNDS=5000` tries more of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any, Final

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)
from tests.property.values.generated import Generated

from odradek.spark.rows.record_bytes import record_encoder
from odradek.sql.doors.source import to_arrow
from odradek.sql.queries.schema_rows import SchemaRowCodec
from odradek.streams.translation.formats import decoder
from odradek.values.errors import SqlError
from odradek.values.formats import RecordFormat, format_of_text, record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.formats.row_codec import UnreadableRecord
from odradek.values.times import day, day_number, moment, moment_ms
from odradek.values.types import SqlType

ROUNDS: Final = int(os.environ.get("ODRADEK_ROUNDS", "60"))
RECORDS: Final = 25
FORMATS: Final = ("JSON", "DELIMITED", "KAFKA", "AVRO", "PROTOBUF", "PROTOBUF_NOSR", "JSON_SR")
REFUSED: Final = "refused"
_SPARK: Final[dict[str, DataType]] = {
    "BOOLEAN": BooleanType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BYTES": BinaryType(),
    "DATE": DateType(),
    "TIME": IntegerType(),
    "TIMESTAMP": TimestampType(),
}
Columns = tuple[tuple[str, SqlType], ...]


def spark_type(kind: SqlType) -> DataType:
    match kind.kind:
        case "DECIMAL":
            return DecimalType(kind.precision, kind.scale)
        case "ARRAY":
            return ArrayType(spark_type(kind.element))
        case "MAP":
            return MapType(spark_type(kind.map_key), spark_type(kind.element))
        case "STRUCT":
            made = StructType()
            for name, part in kind.fields:
                made = made.add(name, spark_type(part))
            return made
    return _SPARK[kind.kind]


def plain(value: Any, kind: SqlType) -> Any:
    """A value of Arrow as rows have it, in a form that compares: NaN equals itself, and -0.0 is not 0.0."""
    match kind.kind, value:
        case _, None:
            return None
        case "DATE", date():
            return day_number(value)
        case "TIMESTAMP", datetime():
            return moment_ms(value)
        case "DOUBLE", float():
            return "NaN" if math.isnan(value) else repr(value)
        case "ARRAY", _:
            return [plain(member, kind.element) for member in value]
        case "MAP", _:
            pairs = value.items() if isinstance(value, Mapping) else value
            return sorted((name, plain(member, kind.element)) for name, member in pairs)
        case "STRUCT", _:
            return [plain(value[name], part) for name, part in kind.fields]
    assert not isinstance(value, date | time)
    return value


def for_spark(value: Any, kind: SqlType) -> Any:
    match kind.kind:
        case _ if value is None:
            return None
        case "DATE":
            return day(value)
        case "TIMESTAMP":
            return moment(value)
        case "ARRAY":
            return [for_spark(member, kind.element) for member in value]
        case "MAP":
            return [(name, for_spark(member, kind.element)) for name, member in value.items()]
        case "STRUCT":
            return {name: for_spark(value[name], part) for name, part in kind.fields}
    return value


class Twins:
    """One format for both. `rows`: row by row. `form`: what Spark's source, sink and tasks use, for columns."""

    def __init__(self, info: FormatInfo, columns: Columns, *, is_key: bool) -> None:
        self.columns = columns
        self.rows = SchemaRowCodec(columns, info, is_key=is_key)
        form = record_format(
            info, [(name, f"c{place}", kind) for place, (name, kind) in enumerate(columns)], is_key=is_key
        )
        self.form: RecordFormat = form if form.text is None else format_of_text(form.text)
        self.type = StructType()
        for place, (_, kind) in enumerate(columns):
            self.type = self.type.add(f"c{place}", spark_type(kind))

    def read_by_rows(self, data: bytes) -> Any:
        try:
            row = self.rows.decode(data)
        except UnreadableRecord:
            return REFUSED
        return row and [plain(value, kind) for value, (_, kind) in zip(row, self.columns, strict=True)]

    def read_by_doors(self, data: bytes) -> Any:
        """What JDBC and Spark Connect are shown: rows that become columns."""
        try:
            row = self.rows.decode(data)
        except UnreadableRecord:
            return REFUSED
        shown = []
        for value, (_, kind), field in zip(row or (), self.columns, self.type.fields, strict=bool(row)):
            convert = to_arrow(kind)
            array = pa.array([value if convert is None else convert(value)], arrow_type(field.dataType))
            shown.append(plain(array.to_pylist()[0], kind))
        return row and shown

    def read_by_columns(self, datas: list[bytes]) -> list[Any]:
        rows = decoder(self.form, self.type)(pa.array(datas, pa.binary())).to_pylist()
        return [
            REFUSED
            if row["problem"] is not None
            else row["value"]
            and [plain(row["value"][f"c{place}"], kind) for place, (_, kind) in enumerate(self.columns)]
            for row in rows
        ]

    def written_by_rows(self, row: list[Any]) -> Any:
        try:
            return self.rows.encode(row)
        except SqlError:
            return REFUSED

    def written_by_columns(self, row: list[Any]) -> Any:
        value = {
            f"c{place}": for_spark(member, kind)
            for place, (member, (_, kind)) in enumerate(zip(row, self.columns, strict=True))
        }
        try:
            return record_encoder(self.form)(pa.array([value], arrow_type(self.type)))[0].as_py()
        except ValueError:
            return REFUSED


def arrow_type(kind: DataType) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC")


def twins(name: str, generated: Generated) -> Twins | None:
    """None where the format refuses the columns."""
    is_key = generated.chance(0.2)
    count = 1 if name == "KAFKA" else generated.random.randint(1, 4)
    kinds = [generated.kind(is_nested=name not in ("KAFKA", "DELIMITED")) for _ in range(count)]
    columns = tuple((f"{'aBc'[place % 3]}{place}", kind) for place, kind in enumerate(kinds))
    info = FormatInfo(
        name=name,
        schema_id=1,
        wrapped=generated.chance(0.8),
        delimiter=generated.random.choice((",", ",", "|", "TAB", "SPACE")),
        nullable=generated.random.choice((None, "OPTIONAL", "WRAPPER"))
        if name.startswith("PROTOBUF")
        else None,
    )
    try:
        return Twins(info, columns, is_key=is_key)
    except SqlError:
        return None


def rows_and_records(
    name: str, pair: Twins, generated: Generated
) -> Iterator[tuple[list[Any] | None, bytes]]:
    """Rows and what they are written as, and bytes that are no such row."""
    for _ in range(RECORDS):
        row = [generated.value(kind) for _, kind in pair.columns]
        data = pair.written_by_rows(row)
        if isinstance(data, bytes):
            yield row, data
            yield None, generated.spoiled(data)
        else:
            yield row, b""
        if name in ("JSON", "JSON_SR"):
            head = b"\0\0\0\0\1" if name == "JSON_SR" else b""
            struct = SqlType(kind="STRUCT", fields=pair.columns)
            text = generated.json(
                struct if len(pair.columns) > 1 or generated.chance(0.7) else struct.fields[0][1]
            )
            yield None, head + text.encode(errors="surrogatepass")
        elif name == "DELIMITED":
            yield None, generated.delimited(len(pair.columns), generated.random.choice(",|")).encode()
        else:
            yield None, generated.random.randbytes(generated.random.choice((0, 1, 4, 8, 9)))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_columns_are_the_same(name: str) -> None:
    generated = Generated(FORMATS.index(name))
    different: list[Any] = []
    counts = {"read": 0, "refused": 0}
    for _ in range(ROUNDS):
        pair = twins(name, generated)
        if pair is None:
            continue
        records = list(rows_and_records(name, pair, generated))
        by_columns = pair.read_by_columns([data for _, data in records])
        for (row, data), columnar in zip(records, by_columns, strict=True):
            by_rows = pair.read_by_rows(data)
            counts["refused" if by_rows == REFUSED else "read"] += 1
            for way, other in (("columns", columnar), ("doors", pair.read_by_doors(data))):
                if by_rows != other:
                    different.append((way, pair.columns, data, by_rows, other))
            if row is not None and pair.written_by_rows(row) != pair.written_by_columns(row):
                written = (pair.written_by_rows(row), pair.written_by_columns(row))
                different.append(("written", pair.columns, row, *written))
    assert different[:5] == []
    assert min(counts.values()) > ROUNDS, counts
