"""Reaches expressions and plans of Catalyst, Spark's planner, for which PySpark has no function."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Required, TypeAlias, TypedDict

from pyspark.sql import Column, DataFrame

from odradek.spark.engine.session import java_column, java_frame, jvm_of

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
"""Types whose arithmetic overflows without an error, unless `spark.sql.ansi.enabled` is set."""
_NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double")
"""Numbers as Spark's JSON names them, each before the wider ones."""
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
"""The precision of the decimal that holds every value of an integer."""
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),(-?[0-9]+)\)")
_PRINTED: Final = frozenset({*_NUMBERS, "boolean", "string", "date", "timestamp", "timestamp_ntz"})
"""Types whose every value has a text. A decimal has, too."""

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


class SparkField(TypedDict):
    """A field of a struct, in Spark's JSON of types."""

    name: str
    type: SparkType
    nullable: bool


class SparkParts(TypedDict, total=False):
    """A struct, an array or a map, in Spark's JSON of types. `type` names which."""

    type: Required[str]
    fields: list[SparkField]
    elementType: SparkType
    containsNull: bool
    keyType: SparkType
    valueType: SparkType
    valueContainsNull: bool


SparkType: TypeAlias = "str | SparkParts"
"""A type in Spark's JSON: the name of a simple one."""


class StreamingLeaf(NamedTuple):
    """A stream that a query reads: what kind it is, and the options that it was given."""

    kind: str
    options: Mapping[str, str]


def try_eval(column: Column, rows: DataFrame) -> Column:
    """Returns the column with null where computing it raises. Spark has it as an expression, and for some functions as SQL."""
    catalyst = jvm_of(rows.sparkSession).org.apache.spark.sql
    expressions = catalyst.classic.ExpressionUtils
    tried = catalyst.catalyst.expressions.TryEval(expressions.expression(java_column(column)))
    return Column(expressions.column(tried))


def cannot_raise(columns: Sequence[Column], rows: DataFrame) -> bool:
    """Tells whether computing these columns of `rows` raises for no row, as far as their classes show it. Every class that is
    not known here may raise, functions in Python among them. So may columns that Spark does not compute in one projection of
    `rows`: the plan of a generator, a window or a function in SQL has expressions below the last node, too.
    """
    if not columns:
        return True
    plan = java_frame(rows.select(*columns)).queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "Project":
        return False
    if not plan.child().fastEquals(java_frame(rows).queryExecution().analyzed()):
        return False
    return all(_is_harmless(expression) for expression in _elements(plan.expressions()))


def _elements(sequence: JavaObject) -> Iterator[JavaObject]:
    """Yields the elements of a sequence of Scala's."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _is_harmless(expression: JavaObject) -> bool:
    package, _, name = expression.getClass().getName().rpartition(".")
    if package != _EXPRESSIONS:
        return False
    if name in _LEAVES:
        return True
    if name == "Cast":
        source, target = (json.loads(end.dataType().json()) for end in (expression.child(), expression))
        harmless = _casts_every_value(source, target)
    elif name in _ARITHMETIC:
        harmless = not expression.failOnError() and expression.dataType().simpleString() in _WRAPPING
    else:
        harmless = name in _HARMLESS
    return harmless and all(_is_harmless(child) for child in _elements(expression.children()))


def _casts_every_value(source: SparkType, target: SparkType) -> bool:
    """Tells whether a cast between two types, in Spark's JSON, raises for no value, with ANSI mode and without, in every time
    zone.

    Spark's own `canUpCast` promises less: it has dates cast to timestamps, and timestamps to those without a zone, whose range
    is narrower in some zones.
    """
    if source in (target, "void"):
        return True
    if isinstance(source, str) and isinstance(target, str):
        if target == "string":
            return source in _PRINTED or _DECIMAL.fullmatch(source) is not None
        return _is_wider(source, target)
    if isinstance(source, str) or isinstance(target, str) or source["type"] != target["type"]:
        return False
    return _casts_every_part(source, target)


def _casts_every_part(source: SparkParts, target: SparkParts) -> bool:
    """Tells the same of two arrays, maps or structs. What may be null is cast to what may be null."""
    match source["type"]:
        case "array":
            return (
                _casts_every_value(source["elementType"], target["elementType"])
                and source["containsNull"] <= target["containsNull"]
            )
        case "map":
            return (
                _casts_every_value(source["keyType"], target["keyType"])
                and _casts_every_value(source["valueType"], target["valueType"])
                and source["valueContainsNull"] <= target["valueContainsNull"]
            )
        case "struct":
            pairs = list(zip(source["fields"], target["fields"], strict=False))
            return len(source["fields"]) == len(target["fields"]) and all(
                _casts_every_value(old["type"], new["type"]) and old["nullable"] <= new["nullable"]
                for old, new in pairs
            )
    return False


def _is_wider(source: str, target: str) -> bool:
    """Tells whether a type of numbers holds every value of another, if only roughly: a double has fewer digits than a long."""
    if source in _NUMBERS and target in _NUMBERS:
        return _NUMBERS.index(source) <= _NUMBERS.index(target)
    wide = _DECIMAL.fullmatch(target)
    if wide is None:
        return False
    precision, scale = map(int, wide.groups())
    if source in _DIGITS:
        return scale >= 0 and precision - scale >= _DIGITS[source]
    narrow = _DECIMAL.fullmatch(source)
    if narrow is None:
        return False
    old_precision, old_scale = map(int, narrow.groups())
    return precision - scale >= old_precision - old_scale and scale >= old_scale


def simplified(rows: DataFrame) -> DataFrame:
    """Returns the same rows by a plan that Spark's optimizer has less to do with. A micro-batch is analysed and optimised from
    the plan of its query's start: what rules find again in each batch, they find here once.

    The rules are Spark's own, which it applies to every plan in any case. None of them evaluates an expression: a constant that
    raises fails in the first batch as before, and each batch has its own current time.
    """
    catalyst = jvm_of(rows.sparkSession).org.apache.spark.sql
    rules = [getattr(catalyst.catalyst.optimizer, name) for name in _RULES]
    frame = java_frame(rows)
    plan = frame.queryExecution().analyzed()
    for _ in range(_PASSES_MAX):
        before = plan
        for rule in rules:
            plan = rule.apply(plan)
        if plan.fastEquals(before):
            break
    return DataFrame(catalyst.classic.Dataset.ofRows(frame.sparkSession(), plan), rows.sparkSession)


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
