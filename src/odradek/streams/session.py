"""A Spark session that is light enough for a laptop and for tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import pyspark.sql as sql
else:
    sql = lazy("pyspark.sql")

ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STORE: Final = "spark.sql.streaming.stateStore.providerClass"


def session(name: str, given: sql.SparkSession | None, tasks: int) -> sql.SparkSession:
    """The given session, the active one, or a new local one. Its state stores are RocksDB, which transformWithState needs."""
    spark = given or sql.SparkSession.getActiveSession()
    if spark is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        spark = (
            sql.SparkSession.builder.appName(name)
            .master("local[*]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", str(tasks))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .getOrCreate()
        )
    if spark.conf.get(_STORE) != ROCKS_DB:
        spark.conf.set(_STORE, ROCKS_DB)
    return spark
