"""Casts between types, as Spark SQL. Text that cannot be read is null, as in ksqlDB."""

from __future__ import annotations

from typing import Final

from odradek.sql.functions.literals import quoted
from odradek.sql.functions.numeric import plain_decimal
from odradek.values.errors import SqlError
from odradek.values.types import SqlType, can_cast, common_type

_TIMESTAMP_PATTERN: Final = r"yyyy-MM-dd\'T\'HH:mm:ss.SSS"
_MS_PER_DAY: Final = 86_400_000
_TIME_ALONE: Final = "(?s)^[^0-9T]*(T|[0-9]{1,2}:).*"
"""Matches a time without a date, which Spark takes for one of the day on which the query runs, and ksqlDB refuses."""
_TIME_TEXT: Final = "(?s)^[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(?!.)"
"""The texts of `LocalTime.parse`. Spark reads an empty text as midnight, and 1 as one o'clock."""


def cast(text: str, source: SqlType, target: SqlType) -> str:
    """Returns CAST(text AS target). SqlError for a cast that does not exist."""
    if not can_cast(source, target):
        raise SqlError(f"Cast of {source} to {target} is not supported")
    return converted(text, source, target)


def converted(text: str, source: SqlType, target: SqlType) -> str:  # noqa: C901 - a case for each type
    """Returns the text for a conversion that exists."""
    if source == target:
        return text
    if source.kind == "NULL":
        return f"cast(null as {target.ddl})"
    match target.kind:
        case "STRING":
            return _to_string(text, source)
        case "BOOLEAN":
            return f"(lower(trim({text})) in ('true', 't', 'tr', 'tru', 'yes', 'ye', 'y'))"
        case "INTEGER" | "BIGINT" | "DOUBLE" | "DECIMAL":
            return _to_number(text, source, target)
        case "DATE" if source.kind == "TIMESTAMP":
            return f"to_date({text})"
        case "DATE":
            return f"try_cast({text} as date)"
        case "TIMESTAMP":
            return f"try_cast(regexp_replace({text}, '{_TIME_ALONE}', '') as timestamp)"
        case "TIME" if source.kind == "TIMESTAMP":
            return f"cast(pmod(unix_millis({text}), {_MS_PER_DAY}) as int)"
        case "TIME":
            whole = f"nullif(regexp_extract({text}, '{_TIME_TEXT}', 0), '')"
            return f"cast(unix_millis(try_to_timestamp(concat('1970-01-01 ', {whole}))) as int)"
        case "ARRAY":
            return f"transform({text}, x_ -> {converted('x_', source.element, target.element)})"
        case "MAP":
            keys = converted("k_", source.map_key, target.map_key)
            values = converted("v_", source.element, target.element)
            return f"transform_values(transform_keys({text}, (k_, v_) -> {keys}), (k_, v_) -> {values})"
        case "STRUCT":
            return _to_struct(text, source, target)
    return f"cast({text} as {target.ddl})"


def _to_struct(text: str, source: SqlType, target: SqlType) -> str:
    known = dict(source.fields)
    parts = []
    for name, kind in target.fields:
        value = f"{text}.`{name}`" if name in known else "null"
        field = converted(value, known[name], kind) if name in known else f"cast(null as {kind.ddl})"
        parts.append(f"'{name}', {field}")
    return f"if({text} is null, null, named_struct({', '.join(parts)}))"


def _to_number(text: str, source: SqlType, target: SqlType) -> str:
    """Returns SQL for a cast to a number: one too large loses its upper bits, as in Java; text that is no number is null."""
    if source.kind == "STRING":
        return f"try_cast(trim({text}) as {target.ddl})"
    if target.kind in ("INTEGER", "BIGINT"):
        return f"cast({text} as {target.ddl})"
    return f"try_cast({text} as {target.ddl})"


def _to_string(text: str, source: SqlType) -> str:
    match source.kind:
        case "TIMESTAMP":
            return f"date_format({text}, '{_TIMESTAMP_PATTERN}')"
        case "TIME":
            return _time_text(text)
        case "DECIMAL":
            return plain_decimal(text, source)
        case "ARRAY" | "MAP" | "STRUCT":
            return _inner_text(text, source, 0)
    return f"cast({text} as string)"


def _inner_text(text: str, kind: SqlType, depth: int) -> str:
    """Returns the text that Java's collections and Connect's Struct write: [1, 2], {k=v}, Struct{A=1,B=2}."""
    member = f"x{depth}_"
    match kind.kind:
        case "ARRAY":
            parts = f"transform({text}, {member} -> {_or_null(_inner_text(member, kind.element, depth + 1))})"
            return f"concat('[', array_join({parts}, ', '), ']')"
        case "MAP":
            key = _inner_text(f"{member}.key", kind.map_key, depth + 1)
            value = _or_null(_inner_text(f"{member}.value", kind.element, depth + 1))
            parts = f"transform(map_entries({text}), {member} -> concat({key}, '=', {value}))"
            return f"concat('{{', array_join({parts}, ', '), '}}')"
        case "STRUCT":
            fields = (
                f"concat({quoted(f'{name}=')}, {_inner_text(f'{text}.`{name}`', part, depth + 1)})"
                for name, part in kind.fields
            )
            parts = ", ".join(["','", *fields])
            return f"if({text} is null, null, concat('Struct{{', concat_ws({parts}), '}}'))"
        case "DATE":
            return f"date_format({text}, 'yyyy-MM-dd')"
        case "TIME":
            return f"date_format(timestamp_millis({text}), 'HH:mm:ss')"
        case "TIMESTAMP":
            fraction = f"regexp_replace(date_format({text}, 'SSS'), '0{{1,2}}$', '')"
            return f"concat(date_format({text}, 'yyyy-MM-dd HH:mm:ss.'), {fraction})"
        case "BYTES":
            return f"base64({text})"
    return f"cast({text} as string)"


def _or_null(text: str) -> str:
    return f"coalesce({text}, 'null')"


def _time_text(text: str) -> str:
    """Returns Java's LocalTime.toString: seconds and thousandths only where they are not zero."""
    pattern = f"case when {text} % 60000 = 0 then 'HH:mm' when {text} % 1000 = 0 then 'HH:mm:ss' else 'HH:mm:ss.SSS' end"
    return f"date_format(timestamp_millis({text}), {pattern})"


def comparable(left: tuple[str, SqlType], right: tuple[str, SqlType]) -> tuple[str, str] | None:
    """Returns both sides as values that compare; None when there are none."""
    (left_text, left_type), (right_text, right_type) = left, right
    common = common_type(left_type, right_type)
    if common is not None:
        return (
            _ordered(converted(left_text, left_type, common), common),
            _ordered(converted(right_text, right_type, common), common),
        )
    kinds = {left_type.kind, right_type.kind}
    for kind in (left_type, right_type):
        if kind.kind in ("DATE", "TIME", "TIMESTAMP") and "STRING" in kinds:
            return converted(left_text, left_type, kind), converted(right_text, right_type, kind)
    if kinds == {"DATE", "TIMESTAMP"}:
        moment = SqlType(kind="TIMESTAMP")
        return converted(left_text, left_type, moment), converted(right_text, right_type, moment)
    return None


def comparison_with_null(left: SqlType, right: SqlType) -> SqlError:
    """Returns the error for a NULL that is written on one side of a comparison."""
    return SqlError(
        f"Comparison with NULL not supported: {left} and {right}", hint="Use IS NULL or IS NOT NULL instead"
    )


def _ordered(text: str, kind: SqlType) -> str:
    """Turns maps into their entries, in the order of their keys: Spark compares no maps."""
    if not kind.holds_map:
        return text
    match kind.kind:
        case "MAP":
            entry = f"named_struct('k', e_.key, 'v', {_ordered('e_.value', kind.element)})"
            return f"array_sort(transform(map_entries({text}), e_ -> {entry}))"
        case "ARRAY":
            return f"transform({text}, x_ -> {_ordered('x_', kind.element)})"
    fields = ", ".join(f"'{name}', {_ordered(f'{text}.`{name}`', inner)}" for name, inner in kind.fields)
    return f"if({text} is null, null, named_struct({fields}))"
