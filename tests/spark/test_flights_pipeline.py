"""The demo's pipeline on two days of made-up flights: every hour comes out, once, with the right numbers."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from odradek.client import Admin, NewTopic, Producer

START = datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def pipeline() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "flights" / "hourly_departures.py"
    spec = importlib.util.spec_from_file_location("hourly_departures", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_hour_comes_out_once_though_the_flights_end(
    pipeline: ModuleType, spark: Any, servers: str, tmp_path: Path, run_to_end: Callable[[Any], None]
) -> None:
    flights = [
        {
            "time_hour": f"{START + timedelta(hours=number // 4):%Y-%m-%dT%H:%M:%SZ}",
            "origin": ["EWR", "JFK"][number % 2],
            "carrier": "UA",
            "dep_time": None if number % 5 == 0 else 1000 + number,
            "dep_delay": None if number % 5 == 0 else float(number),
        }
        for number in range(4 * 48)
    ]
    with Admin(servers) as admin:
        admin.create_topics(
            [NewTopic("flights", 2), NewTopic("airlines", 1), NewTopic(pipeline.RESULT_TOPIC, 2)]
        )
    with Producer(servers) as producer:
        producer.send("airlines", b'{"carrier": "UA", "name": "United"}')
        for number, flight in enumerate(flights):
            producer.send("flights", json.dumps(flight).encode(), partition=number % 2)
        producer.send("flights", pipeline.last_event(START + timedelta(hours=47)), partition=0)
    pipeline.ROWS_PER_BATCH = 80
    query = pipeline.start(spark, servers, str(tmp_path))
    run_to_end(query)

    rows = pipeline.read_back(spark, servers).selectExpr("*", "unix_seconds(hour) AS at").collect()
    assert {row.versions for row in rows} == {1}
    departed = Counter((f["time_hour"], f["origin"]) for f in flights if f["dep_time"] is not None)
    counted = {
        (f"{datetime.fromtimestamp(row.at, UTC):%Y-%m-%dT%H:%M:%SZ}", row.origin): row.departures
        for row in rows
    }
    assert len(counted) == len(rows) == 96
    assert {group: count for group, count in counted.items() if count} == departed
    assert sum(row.cancellations for row in rows) == sum(f["dep_time"] is None for f in flights)
    assert {row.airline for row in rows} == {"United"}
    total = sum(row.mean_delay * row.departures for row in rows if row.mean_delay is not None)
    assert total == pytest.approx(sum(f["dep_delay"] or 0.0 for f in flights))
