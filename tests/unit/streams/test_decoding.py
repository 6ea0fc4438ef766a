"""Records by schema in an Arrow batch: one that cannot be decoded is a problem of its own, the others go on."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.model.errors import OdradekError

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql.types import (
    DecimalType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from odradek.streams.translation.formats import decoder
from odradek.values.formats import record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.types import parse_type


def batch(name: str, kind: str, spark_type: Any, *datas: bytes) -> list[dict[str, Any]]:
    form = record_format(FormatInfo(name=name), [("X", "X", parse_type(kind))], is_key=False)
    decode = decoder(form, StructType([StructField("X", spark_type)]))
    rows: list[dict[str, Any]] = decode(pa.array(datas, pa.binary())).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("name", "kind", "spark_type", "bad", "good"),
    [
        ("JSON", "STRING", StringType(), rb'{"X":"\ud800"}', b'{"X":"1"}'),
        ("JSON", "INT", IntegerType(), b'{"X":Infinity}', b'{"X":1}'),
        ("JSON", "INT", IntegerType(), b'{"X":1e999999999}', b'{"X":1}'),
        ("JSON", "DOUBLE", DoubleType(), b'{"X":' + b"[" * 100_000, b'{"X":1}'),
        ("DELIMITED", "STRING", StringType(), b'"a"b', b"1"),
        ("DELIMITED", "DECIMAL(10, 2)", DecimalType(10, 2), b"12345678901.00", b"1"),
    ],
)
def test_one_bad_record_does_not_stop_its_batch(
    name: str, kind: str, spark_type: Any, bad: bytes, good: bytes
) -> None:
    first, wrong, last = batch(name, kind, spark_type, good, bad, good)
    assert first["problem"] is None
    assert first == last
    assert first["value"]["X"] is not None
    assert wrong["value"] is None
    assert wrong["problem"].startswith(f"it is not {name}: ")


class Scripted:
    """A format of anyone: it gives or raises what the test says of each record."""

    name = "Scripted"
    is_record = False
    ddl = "value INT"

    def __init__(self, answers: dict[bytes, Any]) -> None:
        self._answers = answers

    def encode(self, value: Any) -> bytes | None:
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        decoded = self._answers[data]
        if isinstance(decoded, Exception):
            raise decoded
        return decoded


def test_a_value_that_does_not_fit_the_type_is_found_among_those_that_do() -> None:
    form = Scripted({b"a": 1, b"b": 1 << 40, b"c": "text", b"d": KeyError("\ud800"), b"e": 5})
    made = decoder(form, IntegerType())(pa.array([b"a", b"b", b"c", b"d", None, b"e"], pa.binary()))
    assert made.field("value").to_pylist() == [1, None, None, None, None, 5]
    assert [problem is None for problem in made.field("problem").to_pylist()] == [
        True,
        False,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("error", [OdradekError("the registry is away"), TimeoutError(), MemoryError()])
def test_what_is_no_matter_of_the_record_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        decoder(Scripted({b"a": error}), IntegerType())(pa.array([b"a"], pa.binary()))
