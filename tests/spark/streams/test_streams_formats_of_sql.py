"""Formats of SQL in programs: the source decodes and the sink encodes what functions of the plan did, to the same records."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from tests.spark.streams.until_now import TIMEOUT_S

from odradek.client import Producer
from odradek.streams import Streams
from odradek.streams.translation import formats, outputs
from odradek.values.formats import RecordFormat, record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.types import parse_type

KINDS: Final = (
    "INT",
    "STRING",
    "DOUBLE",
    "DECIMAL(9, 2)",
    "BYTES",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "ARRAY<INT>",
    "MAP<STRING, BIGINT>",
    "STRUCT<A BOOLEAN, B ARRAY<DATE>>",
)
WHOLE: Final = (
    b'{"V0":1,"V1":"\xc3\xbc","V2":1.5,"V3":2.50,"V4":"AQ==","V5":19000,"V6":5,"V7":1764464523004,"V8":[1,null],'
    b'"V9":{"a":1,"b":null},"V10":{"A":true,"B":[1,null]}}'
)
RECORDS: Final = (
    (b"a", WHOLE),
    (b"a", b"{}"),
    (None, b'{"V0":7}'),
    (b"b", None),
    (b"b", b"null"),
    (b"\xff", b'{"V0":"x"}'),
    (b"c", b"[1"),
    (b"c", b'{"V0":-3,"V2":"NaN","V7":-1}'),
)


def key_format() -> RecordFormat:
    return record_format(FormatInfo(name="KAFKA"), [("K", "key_0", parse_type("STRING"))], is_key=True)


def value_format(*kinds: str) -> RecordFormat:
    columns = [(f"V{place}", f"value_{place}", parse_type(kind)) for place, kind in enumerate(kinds)]
    return record_format(FormatInfo(name="JSON"), columns, is_key=False)


def plan_of(query: Any) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown):
        query.explain()
    return shown.getvalue()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_source_and_the_sink_do_what_functions_of_the_plan_do(
    delivery: str,
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, plans = [], []
    orders, bad_orders = new_topic(), new_topic()
    with Producer(servers) as producer:
        for number, (key, value) in enumerate(RECORDS):
            producer.send(orders.name, value, key=key, timestamp_ms=number)
    for is_in_plan in (False, True):
        out = new_topic()
        app = Streams(f"of-sql-{delivery}-{is_in_plan}", servers=servers, spark=spark)
        stream = app.stream(
            orders.name, key_format=key_format(), value_format=value_format(*KINDS), bad=bad_orders.name
        )
        stream = stream.select(*(f"value_{place}" for place in range(len(KINDS))), null_stays=True)
        stream.to(out.name, key_format=key_format(), value_format=value_format(*KINDS))
        with monkeypatch.context() as patched:
            if is_in_plan:
                for module in (formats, outputs):
                    patched.setattr(module, "format_text", lambda form: None)
            with app.start(
                checkpoint=str(tmp_path / str(is_in_plan)), until_now=True, delivery=delivery
            ) as started:
                assert started.wait(TIMEOUT_S)
                (query,) = started.queries.values()
                plans.append(plan_of(query))
        written.append([(row["key"], row["value"], row["timestamp_ms"]) for row in consume(out)])
    assert written[0] == written[1]
    assert [key for key, *_ in written[0] if key] == [b"a", b"a", b"b", b"b", b"c"]
    assert len(written[0]) == 6
    assert written[0][0][1] == WHOLE
    letters = [(row["key"], row["value"]) for row in consume(bad_orders)]
    assert letters == 2 * [(b"\xff", b'{"V0":"x"}'), (b"c", b"[1")]
    assert ["ArrowEvalPython" in plan for plan in plans] == [False, True]
