"""Which task of which batch runs here, as Spark tells its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import pyspark
else:
    pyspark = lazy("pyspark")

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlace:
    """A micro-batch of a streaming query; None for both in a batch write of its own."""

    query: str | None
    batch: int | None


def batch_place() -> BatchPlace:
    """Of the task that runs here."""
    context = pyspark.TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    batch = context.getLocalProperty(_BATCH) if context is not None else None
    return BatchPlace(query=query, batch=None if batch is None else int(batch))
