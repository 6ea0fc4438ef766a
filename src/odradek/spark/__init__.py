"""Odradek in Spark: `format("odradek")` for batch and streaming reads and writes, with no connector jar.

Nothing needs registering: Spark finds the source through the package `pyspark_odradek` that is installed with
this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.spark.clients.login import connection_options
    from odradek.spark.dead_letters.guarded import (
        add_dead_letters,
        guarded,
        split_dead_letters,
        where_or_dead,
    )
    from odradek.spark.lag import publish_offsets
    from odradek.spark.query_metrics import serve_metrics
    from odradek.spark.source import OdradekDataSource
    from odradek.spark.writing.duplicates import deduplicate

__all__ = [
    "OdradekDataSource",
    "add_dead_letters",
    "connection_options",
    "deduplicate",
    "guarded",
    "publish_offsets",
    "serve_metrics",
    "split_dead_letters",
    "where_or_dead",
]

__getattr__ = lazy_names(
    globals(),
    {
        "odradek.spark.source": ("OdradekDataSource",),
        "odradek.spark.writing.duplicates": ("deduplicate",),
        "odradek.spark.dead_letters.guarded": (
            "add_dead_letters",
            "guarded",
            "split_dead_letters",
            "where_or_dead",
        ),
        "odradek.spark.lag": ("publish_offsets",),
        "odradek.spark.clients.login": ("connection_options",),
        "odradek.spark.query_metrics": ("serve_metrics",),
    },
)
