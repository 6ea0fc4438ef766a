"""The rows of the benchmark of Spark's reads have as many records as they say: a read of nothing would be the fastest."""

from __future__ import annotations

import pytest
from benchmarks.spark import shapes
from pyspark.sql import SparkSession

SCALE = 0.0004
ROWS = 200


@pytest.fixture(scope="module")
def filled(servers: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "PARTITIONS", 5)
        shapes.fill(servers, SCALE)
    return servers


@pytest.mark.parametrize("name", shapes.shapes_of(SCALE))
def test_a_row_reads_all_its_records(name: str, filled: str, spark: SparkSession) -> None:
    shape = shapes.shapes_of(SCALE)[name]
    pushdown = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(pushdown)
    spark.conf.set(pushdown, "true")
    try:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", filled)
        frame = shape.odradek(reader.option("subscribe", shape.topic))
        rows = frame.collect()
    finally:
        spark.conf.set(pushdown, str(before))
    assert len(rows) == (ROWS // 10 if "last tenth" in name else ROWS)
    if shape.ready_made == "fields":
        assert rows[7]["value"].asDict() == shapes.flight(7)
    if shape.ready_made == "headers":
        assert [header["key"] for header in rows[0]["headers"]] == ["trace", "source", "attempt"]
