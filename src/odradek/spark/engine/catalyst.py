"""Reaches expressions and plans of Catalyst, Spark's planner, for which PySpark has no function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame

from odradek.spark.engine.session import jvm_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql.streaming.query import StreamingQuery

_RELATION: Final = "StreamingRelationV2"
"""The plan node with a source's name and options; Spark's own older sources are another class."""

_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions"
_LEAVES: Final = frozenset({"AttributeReference", "Literal"})
_HARMLESS: Final = frozenset(
    {
        *("Alias", "GetStructField", "CreateNamedStruct"),
        *("If", "CaseWhen", "Coalesce", "IsNull", "IsNotNull"),
        *("And", "Or", "Not", "In"),
        *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
    }
)
"""Expressions that raise only where a child does."""
_ARITHMETIC: Final = frozenset({"Add", "Subtract", "Multiply"})
_WRAPPING: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})
"""Types whose arithmetic overflows without an error, unless `spark.sql.ansi.enabled` says otherwise."""

_RULES: Final = (
    "ColumnPruning",
    "CollapseProject",
    "RemoveNoopOperators",
    "RemoveRedundantAliases",
    "NullPropagation",
    "BooleanSimplification",
    "SimplifyConditionals",
    "SimplifyExtractValueOps",
)
_PASSES_MAX: Final = 10


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


def cannot_raise(columns: Sequence[Column], rows: DataFrame) -> bool:
    """Tells whether computing these columns of `rows` raises for no row, as far as their classes show it. Every class that is
    not known here may raise, functions in Python among them.
    """
    if not columns:
        return True
    selected: Any = rows.select(*columns)
    expressions = selected._jdf.queryExecution().analyzed().expressions()
    upcast = jvm_of(rows.sparkSession).org.apache.spark.sql.catalyst.expressions.Cast.canUpCast
    return all(_is_harmless(expression, upcast) for expression in _elements(expressions))


def _elements(sequence: Any) -> Iterator[Any]:
    """Yields the elements of a sequence of Scala's."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _is_harmless(expression: Any, upcast: Callable[[Any, Any], bool]) -> bool:
    package, _, name = expression.getClass().getName().rpartition(".")
    if package != _EXPRESSIONS:
        return False
    if name in _LEAVES:
        return True
    if name == "Cast":
        harmless = upcast(expression.child().dataType(), expression.dataType())
    elif name in _ARITHMETIC:
        harmless = not expression.failOnError() and expression.dataType().simpleString() in _WRAPPING
    else:
        harmless = name in _HARMLESS
    return harmless and all(_is_harmless(child, upcast) for child in _elements(expression.children()))


def simplified(rows: DataFrame) -> DataFrame:
    """Returns the same rows by a plan that Spark's optimizer has less to do with. A micro-batch is analysed and optimised from
    the plan of its query's start: what rules find again in each batch, they find here once.

    The rules are Spark's own, which it applies to every plan in any case. None of them evaluates an expression: a constant that
    raises fails in the first batch as before, and the current time is that of each batch.
    """
    catalyst = jvm_of(rows.sparkSession).org.apache.spark.sql
    rules = [getattr(catalyst.catalyst.optimizer, name) for name in _RULES]
    java: Any = rows
    plan = java._jdf.queryExecution().analyzed()
    for _ in range(_PASSES_MAX):
        before = plan
        for rule in rules:
            plan = rule.apply(plan)
        if plan.fastEquals(before):
            break
    session = java._jdf.sparkSession()
    return DataFrame(catalyst.classic.Dataset.ofRows(session, plan), rows.sparkSession)


def streaming_leaves(query: StreamingQuery) -> Iterator[StreamingLeaf]:
    """Yields the streams that a running query reads, each as often as its plan names it."""
    running: JavaObject = query._jsq
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
