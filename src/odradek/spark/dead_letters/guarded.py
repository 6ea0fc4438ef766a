"""Functions that may raise, on rows of a stream: the exception becomes a dead letter, and the query continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, ParamSpec, TypeVar

from odradek.dead_letters.headers import RecordFailure
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.model.public import public
from odradek.spark.rows.columns import DEAD_LETTER, DEAD_LETTER_FIELDS, DEAD_LETTER_TYPE, HEADERS_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, functions, types
    from pyspark.sql.pandas import types as arrow
    from pyspark.sql.types import DataType, StructType

    from odradek.spark.rows import result_types
else:
    result_types = lazy("odradek.spark.rows.result_types")
    arrow = lazy("pyspark.sql.pandas.types")
    functions = lazy("pyspark.sql.functions")
    types = lazy("pyspark.sql.types")

P = ParamSpec("P")
R = TypeVar("R")

_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
_FAILURE: Final = ("stage", "exception", "message", "stacktrace")
_NOTHING: Final = (None, None, None, None, None)
_OUTCOME: Final = "__odradek_outcome"
_IS_GUARDED: Final = "odradek.guarded"
"""The key in a column's metadata that marks outcomes of functions that may return something else when called again."""


class GuardedFunction(Generic[P, R]):
    """A function of a row's values, fit for rows whose exceptions must not end the query."""

    def __init__(self, function: Callable[P, R], returns: str | DataType, name: str | None) -> None:
        self._function = function
        self._returns = returns
        self._name = name or str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Returns the function itself, as in a test of it."""
        return self._function(*arguments, **named)

    def apply(self, frame: DataFrame, column: str, *arguments: str | Column) -> DataFrame:
        """Returns `frame` with `column`: the function's result for `arguments`, which are columns.

        Where it raises, `column` is null and `deadLetter` holds the record and the error. It is called once for each
        row, and not at all for rows that have a dead letter already. `frame` needs what a dead letter is made of: the
        columns topic, partition, offset and timestamp, and record, or key and value as they were read.
        """
        record = _record_of(frame)
        bad = functions.col(DEAD_LETTER) if DEAD_LETTER in frame.columns else _no_letter()
        inputs = [
            functions.col(argument) if isinstance(argument, str) else argument for argument in arguments
        ]
        call = GuardedCall(self._function, _parsed(self._returns), self._name)
        # Nondeterministic: Spark must not call it twice, once for the result and once for the error.
        called = functions.udf(call, call.outcome_type(), useArrow=True).asNondeterministic()
        letter = functions.when(bad.isNotNull(), bad).when(
            functions.col(f"{_OUTCOME}.exception").isNotNull(), _letter(record)
        )
        others = [name for name in frame.columns if name not in (column, DEAD_LETTER)]
        return frame.withColumn(_OUTCOME, called(bad.isNotNull(), *inputs)).select(
            *(functions.col(f"`{name}`") for name in others),
            functions.col(f"{_OUTCOME}.result").alias(column),
            letter.alias(DEAD_LETTER, metadata={_IS_GUARDED: True}),
        )


class GuardedCall:
    """The function that Spark calls for each row: it returns result and error in one."""

    def __init__(self, function: Callable[..., object], returns: DataType, stage: str) -> None:
        self._function = function
        self._returns = returns
        self._stage = stage
        self._type = result_types.ResultType(arrow.to_arrow_type(returns, timezone="UTC"))

    def __call__(self, is_dead, *arguments):  # type: ignore[no-untyped-def]  # Spark would read more into hints
        if is_dead:
            return _NOTHING
        try:
            fitted = self._type.fitted(self._function(*arguments))
            return (result_types.with_dicts(fitted, self._type.kind), None, None, None, None)
        except Exception as error:  # noqa: BLE001 - the user's code: what it raises is kept with its record
            failure = RecordFailure.of(error, self._stage)
            return (None, *(getattr(failure, name) for name in _FAILURE))

    def outcome_type(self) -> StructType:
        outcome = types.StructType().add("result", self._returns)
        for name in _FAILURE:
            outcome.add(name, types.StringType())
        return outcome


@public("odradek.spark")
def guarded(
    returns: str | DataType, *, name: str | None = None
) -> Callable[[Callable[P, R]], GuardedFunction[P, R]]:
    """Returns a decorator, as Spark's `udf` is one: `returns` is the type of the result. Then `apply` it to rows.

        @guarded("DOUBLE")
        def price(item, amount):
            return PRICES[item] * amount          # a KeyError makes a dead letter

        orders.transform(price.apply, "price", "value.item", "value.amount")

    `name` is the stage in the dead letters; by default the function's own.
    """
    return lambda function: GuardedFunction(function, returns, name)


@public("odradek.spark")
def where_or_dead(frame: DataFrame, condition: str | Column) -> DataFrame:
    """Rows for which `condition` is true, and all with a dead letter: `where` alone would drop those."""
    _need_letters(frame, "where_or_dead")
    wanted = functions.expr(condition) if isinstance(condition, str) else condition
    return frame.where(functions.col(DEAD_LETTER).isNotNull() | wanted)


@public("odradek.spark")
def split_dead_letters(frame: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Returns the good rows, without `deadLetter`, for anything that cannot carry it along, such as an aggregate; and the
    others.

    `add_dead_letters` puts the two together again before they are written. Both halves read the source, so this takes
    twice the reading; and it refuses rows of guarded functions, which would be called twice and might answer differently.
    """
    _need_letters(frame, "split_dead_letters")
    if frame.schema[DEAD_LETTER].metadata.get(_IS_GUARDED):
        raise ConfigError(
            "split_dead_letters() would call guarded functions once for each half, and they may answer differently:"
            " in foreachBatch, persist() the rows and take both halves by hand"
        )
    letter = functions.col(DEAD_LETTER)
    return frame.where(letter.isNull()).drop(DEAD_LETTER), frame.where(letter.isNotNull()).select(letter)


@public("odradek.spark")
def add_dead_letters(rows: DataFrame, letters: DataFrame) -> DataFrame:
    """Rows to write, and the second half of `split_dead_letters`: what one sink writes in one batch."""
    _need_letters(letters, "add_dead_letters")
    return rows.withColumn(DEAD_LETTER, _no_letter()).unionByName(letters, allowMissingColumns=True)


def _parsed(kind: str | DataType) -> DataType:
    return types.DataType.fromDDL(kind) if isinstance(kind, str) else kind


def _need_letters(frame: DataFrame, what: str) -> None:
    if DEAD_LETTER not in frame.columns:
        raise ConfigError(
            f"{what}() needs the column {DEAD_LETTER}: read with decodeErrors=dead-letter, or apply a guarded function"
        )


def _record_of(frame: DataFrame) -> dict[str, Column]:
    """Returns the columns that a dead letter's fields come from; ConfigError names the missing one."""
    missing = [name for name in _ORIGIN if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"a guarded function needs the column{'s' * (len(missing) > 1)} {', '.join(missing)}, which tell where a"
            " record was: apply it before you select"
        )
    origin = {name: functions.col(f"`{name}`") for name in _ORIGIN}
    if "record" in frame.columns:
        return origin | {name: functions.col(f"record.{name}") for name in ("key", "value", "headers")}
    for name in ("key", "value"):
        if name not in frame.columns or not isinstance(frame.schema[name].dataType, types.BinaryType):
            raise ConfigError(
                f"a guarded function needs the {name} as it was read, for its dead letters: read with"
                " includeRecord=true, or without decoding, and apply it before you select"
            )
    headers = (
        functions.col("headers") if "headers" in frame.columns else functions.lit(None).cast(HEADERS_TYPE)
    )
    return origin | {"key": functions.col("key"), "value": functions.col("value"), "headers": headers}


def _letter(record: dict[str, Column]) -> Column:
    parts: Sequence[Column] = [
        (record[name] if name in record else functions.col(f"{_OUTCOME}.{name}")).cast(kind).alias(name)
        for name, kind in DEAD_LETTER_FIELDS.items()
    ]
    return functions.struct(*parts)


def _no_letter() -> Column:
    return functions.lit(None).cast(DEAD_LETTER_TYPE)
