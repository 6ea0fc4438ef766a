"""A session that plans small batches as streams programs do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from odradek.spark.engine.small_batches import interpret_small_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside that of all tests, with the rules, and without plans that change while they run."""
    other = spark.newSession()
    other.conf.set("spark.sql.adaptive.enabled", "false")
    interpret_small_batches(other)
    yield other
    for query in other.streams.active:
        query.stop()
