"""The JVM keeps the code that it has compiled."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from odradek.spark.engine.session import jvm_of

_BYTES_MIN: Final = 200 << 20
"""Twenty queries of the SQL server have more than the 48 MB that Java keeps with one compiler."""


def test_a_session_has_room_for_the_code_of_many_queries(spark: SparkSession) -> None:
    pools = jvm_of(spark).java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    rooms = [pool.getUsage().getMax() for pool in pools if "Code" in pool.getName()]
    assert rooms
    assert sum(rooms) >= _BYTES_MIN
