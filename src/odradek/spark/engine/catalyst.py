"""Reaches expressions and plans of Catalyst, Spark's planner, for which PySpark has no function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Column

from odradek.spark.engine.session import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_RELATION: Final = "StreamingRelationV2"
"""The plan node with a source's name and options; Spark's own older sources are another class."""


class StreamingLeaf(NamedTuple):
    """A stream that a query reads: what kind it is, and the options that it was given."""

    kind: str
    options: Mapping[str, str]


def try_eval(column: Column, rows: DataFrame) -> Column:
    """Returns the column with null where computing it raises. Spark has it as an expression, and for some functions as SQL."""
    catalyst = jvm_of(rows.sparkSession).org.apache.spark.sql
    expressions = catalyst.classic.ExpressionUtils
    inner: Any = column
    tried = catalyst.catalyst.expressions.TryEval(expressions.expression(inner._jc))
    return Column(expressions.column(tried))


def streaming_leaves(query: StreamingQuery) -> Iterator[StreamingLeaf]:
    """Yields the streams that a running query reads, each as often as its plan names it."""
    running: Any = query._jsq
    leaves = running.streamingQuery().analyzedPlan().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if not leaf.isStreaming():
            continue
        kind = leaf.getClass().getSimpleName()
        if kind == _RELATION:
            yield StreamingLeaf(leaf.sourceName(), dict(leaf.extraOptions().asCaseSensitiveMap()))
        else:
            yield StreamingLeaf(kind, {})
