"""Odradek in Spark: `format("odradek")` for batch and streaming reads and writes, with no connector jar.

Nothing needs registering: Spark finds the source through the package `pyspark_odradek` that is installed with
this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.spark.duplicates import deduplicate
    from odradek.spark.source import OdradekDataSource

__all__ = ["OdradekDataSource", "deduplicate"]


def __getattr__(name: str) -> object:
    if name == "OdradekDataSource":
        from odradek.spark.source import OdradekDataSource

        return OdradekDataSource
    if name == "deduplicate":
        from odradek.spark.duplicates import deduplicate

        return deduplicate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
