"""Text that is JSON, and values as JSON."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Final

from odradek.sql.functions.definitions import ScalarDefinition, scalar
from odradek.sql.functions.exact_json import json_at_in_lambda
from odradek.sql.functions.literals import quoted
from odradek.sql.functions.numeric import has_exponent, plain_decimal
from odradek.sql.functions.signatures import Call
from odradek.values.types import SqlType

_LAMBDA_VARIABLE: Final = re.compile(r"\bl_(?:[0-9a-f]{2})+\b")
"""The names that the analysis gives to variables of lambdas."""
_DECIMAL_MARK: Final = "__odradek_decimal_"
"""Begins a decimal that to_json writes as a text, so that it has no exponent. Its quotes are removed afterwards."""
_OPTIONS: Final = "map('ignoreNullFields', 'false')"


def _is_as_json(kind: SqlType) -> bool:
    """Tells whether Spark writes the type as ksqlDB does: without times, decimals with exponents, and names to sort."""
    if kind.kind in ("TIME", "TIMESTAMP", "MAP") or has_exponent(kind):
        return False
    names = [name for name, _ in kind.fields]
    inside = (*kind.parts, *(part for _, part in kind.fields))
    return names == sorted(names) and all(map(_is_as_json, inside))


def _clock(value: str) -> str:
    """Returns a pattern for a TIME: seconds and milliseconds only if they are not 0."""
    ms = f"unix_millis({value})"
    return f"CASE WHEN {ms} % 60000 = 0 THEN 'HH:mm' WHEN {ms} % 1000 = 0 THEN 'HH:mm:ss' ELSE 'HH:mm:ss.SSS' END"


def _written(value: str, kind: SqlType, depth: int = 0) -> str:
    """Returns Spark SQL that to_json writes as ksqlDB does: times as texts, names of fields and keys of maps in order."""
    if _is_as_json(kind):
        return value
    element = f"__item{depth}"
    match kind.kind:
        case "DECIMAL":
            return f"concat('{_DECIMAL_MARK}', {plain_decimal(value, kind)})"
        case "TIME":
            moment = f"timestamp_millis({value})"
            return f"date_format({moment}, {_clock(moment)})"
        case "TIMESTAMP":
            return f"concat(date_format({value}, 'yyyy-MM-dd'), 'T', date_format({value}, 'HH:mm:ss.SSS'))"
        case "ARRAY":
            return f"transform({value}, {element} -> {_written(element, kind.element, depth + 1)})"
        case "MAP":
            part = _written(f"{element}.value", kind.element, depth + 1)
            entries = f"array_sort(map_entries({value}), (__a{depth}, __b{depth}) -> {_order(depth)})"
            return f"map_from_entries(transform({entries}, {element} -> struct({element}.key, {part})))"
    fields = ", ".join(
        f"{quoted(name)}, {_written(f'{value}.`{name}`', part, depth + 1)}"
        for name, part in sorted(kind.fields, key=itemgetter(0))
    )
    return f"if({value} IS NULL, NULL, named_struct({fields}))"


def _order(depth: int) -> str:
    """Returns the order of two entries by the texts of their keys, which are never equal."""
    left, right = (f"cast({name}{depth}.key as string)" for name in ("__a", "__b"))
    return f"if({left} < {right}, -1, 1)"


def _to_json(call: Call) -> str:
    kind = call.kinds[0]
    if has_exponent(kind):
        return f"coalesce({plain_decimal(call.texts[0], kind)}, 'null')"
    value = _written(call.texts[0], kind)
    if kind.is_simple:
        text = f"to_json(named_struct('v', {value}), {_OPTIONS})"
        return f"substring({text}, 6, length({text}) - 6)"
    text = f"to_json({value}, {_OPTIONS})"
    if _DECIMAL_MARK in value:
        text = f"regexp_replace({text}, '\"{_DECIMAL_MARK}([^\"]*)\"', '$1')"
    return f"coalesce({text}, 'null')"


def _json_at(call: Call) -> str:
    """Spark has no Python function in a lambda."""
    is_in_lambda = any(_LAMBDA_VARIABLE.search(text) for text in call.texts)
    return json_at_in_lambda(*call.texts) if is_in_lambda else f"odradek_json_at({', '.join(call.texts)})"


JSON: Final[tuple[ScalarDefinition, ...]] = (
    scalar(
        "EXTRACTJSONFIELD",
        "JSON",
        "The value at a JSONPath such as '$.a.b[0]', as text; null when it is not there, and 'null' for JSON's null.",
        ("STRING json, STRING path -> STRING", _json_at),
        note="A number with an exponent stays as it is written; ksqlDB writes 1e3 as 1E+3.",
    ),
    scalar(
        "IS_JSON_STRING",
        "JSON",
        "Whether the text is JSON.",
        ("STRING json -> BOOLEAN", "odradek_is_json({0})"),
    ),
    scalar(
        "JSON_ARRAY_CONTAINS",
        "JSON",
        "Whether a value is in a JSON array. False when the text is no JSON array.",
        (
            "STRING json, BOOLEAN value -> BOOLEAN",
            "odradek_json_array_contains({0}, to_json(named_struct('v', {1})))",
        ),
        (
            "STRING json, INT value -> BOOLEAN",
            "odradek_json_array_contains({0}, to_json(named_struct('v', {1})))",
        ),
        (
            "STRING json, BIGINT value -> BOOLEAN",
            "odradek_json_array_contains({0}, to_json(named_struct('v', {1})))",
        ),
        (
            "STRING json, DOUBLE value -> BOOLEAN",
            "odradek_json_array_contains({0}, to_json(named_struct('v', {1})))",
        ),
        (
            "STRING json, STRING value -> BOOLEAN",
            "odradek_json_array_contains({0}, to_json(named_struct('v', {1})))",
        ),
    ),
    scalar(
        "JSON_ARRAY_LENGTH",
        "JSON",
        "The number of elements of a JSON array; null when the text is none.",
        ("STRING json -> INT", "odradek_json_array_length({0})"),
    ),
    scalar(
        "JSON_CONCAT",
        "JSON",
        "JSON objects as one, of equal keys the last one; arrays as one, where another value is an array of it.",
        ("STRING json, STRING... others -> STRING", "odradek_json_concat(array({all}))"),
    ),
    scalar(
        "JSON_ITEMS",
        "JSON",
        "The objects of a JSON array, as texts; null when one of its elements is no object.",
        ("STRING json -> ARRAY<STRING>", "odradek_json_items({0})"),
    ),
    scalar(
        "JSON_KEYS",
        "JSON",
        "The keys of a JSON object; null when the text is none.",
        ("STRING json -> ARRAY<STRING>", "odradek_json_keys({0})"),
    ),
    scalar(
        "JSON_RECORDS",
        "JSON",
        "The keys of a JSON object, and their values: texts as they are, others as JSON. Null when the text is none.",
        ("STRING json -> MAP<STRING, STRING>", "odradek_json_records({0})"),
    ),
    scalar(
        "TO_JSON_STRING",
        "JSON",
        "The value as JSON.",
        ("T value -> STRING", _to_json),
    ),
)
