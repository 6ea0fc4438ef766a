"""Records of a topic as they are read, to a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from odradek.spark.rows.columns import DEAD_LETTER
from odradek.streams.plan.operators import TopicSource
from odradek.streams.processors.failures import Letters
from odradek.streams.translation.formats import Decoded, decoded, source_options
from odradek.streams.translation.frames import HEADERS, ORIGIN, STATE, RecordFrame, computed_here, filtered
from odradek.streams.translation.letters import PASSING_TYPE, failed, origin_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def reading_options(source: TopicSource, letters: Letters | None) -> dict[str, str]:
    """Returns the options of `format("odradek")` that give `incoming` its columns."""
    options = {**source_options(source.key, "key"), **source_options(source.value, "value")}
    if letters is not None:
        options["includeRecord"] = "true"
        if options.keys() & {"keyDecode", "valueDecode"}:
            options["decodeErrors"] = "dead-letter"
    return {**options, "includeHeaders": "true"}


def incoming(rows: DataFrame, source: TopicSource, number: int, letters: Letters | None) -> RecordFrame:
    """Decodes the records of a source into the columns of operators. `rows` was read with `reading_options`. Of two sources
    with records of one time, the one with the lower number goes first. Bytes that are not what was declared end the query with
    an error that tells where they are, or become dead letters."""
    when = sf.unix_millis("timestamp")
    turn = sf.lit(0).cast("bigint") if source.everywhere else when  # a global table goes before what joins it
    parts = {
        role: decoded(schema, role, by_source=True)
        for role, schema in (("key", source.key), ("value", source.value))
    }
    known: list[Column] = [
        computed_here(when).alias("__timestamp"),
        sf.when(sf.size("headers") > 0, sf.col("headers")).cast(HEADERS).alias("__headers"),
        sf.array(
            turn,
            sf.lit(number).cast("bigint"),
            sf.col("partition").cast("bigint"),
            sf.col("offset"),
            sf.lit(0).cast("bigint"),
        ).alias("__order"),
    ]
    if letters is None:
        read = rows.select(
            *(computed_here(_or_error(part, role)).alias(f"__{role}") for role, part in parts.items()),
            *known,
        )
        return RecordFrame(
            rows=without_negative_times(read, source, letters) if _checks_times(source) else read
        )
    record = sf.col("record")
    origin = origin_of(
        key=record.getField("key"), value=record.getField("value"), headers=record.getField("headers")
    )
    read = rows.select(
        *(computed_here(part.struct).alias(f"__{role}") for role, part in parts.items()),
        *known,
        sf.lit(None).cast(PASSING_TYPE).alias(STATE),
        origin.alias(ORIGIN),
        computed_here(_problem(rows, parts, when if _checks_times(source) else None)).alias("__problem"),
    )
    problem = sf.col("__problem")
    good = problem.getField("exception").isNull()  # not of STATE: Spark would keep two projections
    readable = read.withColumns(
        {name: computed_here(sf.when(good, sf.col(name))) for name in ("__key", "__value")}
    )
    rows = failed(readable, source.name, problem.getField("exception"), problem.getField("message"), letters)
    return RecordFrame(rows=rows.drop("__problem"))


def _checks_times(source: TopicSource) -> bool:
    """Tells whether the records' own timestamps count: no expression takes their place."""
    return source.skips_negative_times and source.timestamp is None


def without_negative_times(rows: DataFrame, source: TopicSource, letters: Letters | None) -> DataFrame:
    """The rows without those whose __timestamp is negative, if the source skips them. The others become rows that pass."""
    if not source.skips_negative_times:
        return rows
    when = sf.col("__timestamp")
    if letters is None or STATE not in rows.columns:
        return filtered(rows, ~sf.coalesce(when < 0, sf.lit(False)))
    failure = _negative(when)
    passing = failed(rows, source.name, failure.getField("exception"), failure.getField("message"), letters)
    good = sf.col(STATE).isNull()
    return passing.withColumns({name: sf.when(good, sf.col(name)) for name in ("__key", "__value")})


def _negative(when: Column) -> Column:
    """Returns the problem of a timestamp; null if there is none."""
    text = sf.concat(sf.lit("the timestamp: "), when.cast("string"), sf.lit(" is negative"))
    return sf.when(when < 0, _failure(sf.lit("ValueError"), text))


def _problem(rows: DataFrame, parts: dict[str, Decoded], when: Column | None) -> Column:
    """Returns exception and message of the first problem; null in good rows. `when`: a timestamp that must not be negative."""
    problems = [sf.lit(None).cast("struct<exception:string,message:string>")]
    if when is not None:
        problems.append(_negative(when))
    if DEAD_LETTER in rows.columns:
        letter = sf.col(DEAD_LETTER)
        text = sf.concat(sf.lit("the "), letter.getField("stage"), sf.lit(": "), letter.getField("message"))
        problems.append(sf.when(letter.isNotNull(), _failure(letter.getField("exception"), text)))
    for role, part in parts.items():
        if part.problem is not None:
            text = sf.concat(sf.lit(f"the {role}: "), part.problem)
            problems.append(sf.when(part.problem.isNotNull(), _failure(sf.lit("ValueError"), text)))
    return sf.coalesce(*problems)


def _failure(exception: Column, message: Column) -> Column:
    return sf.struct(exception.alias("exception"), message.alias("message"))


def _or_error(part: Decoded, role: str) -> Column:
    if part.problem is None:
        return part.struct
    where = sf.concat(
        sf.lit(f"the {role} at "),
        "topic",
        sf.lit("-"),
        "partition",
        sf.lit(" offset "),
        "offset",
        sf.lit(": "),
    )
    return sf.when(part.problem.isNotNull(), sf.raise_error(sf.concat(where, part.problem))).otherwise(
        part.struct
    )
