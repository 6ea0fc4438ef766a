"""Numbers: arithmetic, decimal rounding, trigonometry, distances on the Earth."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from odradek.sql.functions.definitions import ScalarDefinition, scalar
from odradek.sql.functions.signatures import Call
from odradek.values.types import SqlType, decimal_of

_INTEGER_TEXT: Final = re.compile(r"-?[0-9]{1,2}")
_CATEGORY: Final = "MATHEMATICAL"
_PLAIN_SCALE_MAX: Final = 6
"""Java and Spark write decimals of a larger scale with an exponent when they are small."""


def has_exponent(kind: SqlType) -> bool:
    """Tells whether Java and Spark write small numbers of a DECIMAL with an exponent, as 1E-7."""
    return kind.kind == "DECIMAL" and kind.scale > _PLAIN_SCALE_MAX


def plain_decimal(text: str, kind: SqlType) -> str:
    """Returns all digits without an exponent, as Java's toPlainString."""
    if not has_exponent(kind):
        return f"cast({text} as string)"
    written = f"cast({text} as string)"
    zeros = f"repeat('0', cast(substring_index({written}, 'E-', -1) as int) - 1)"
    digits = f"translate(substring_index({written}, 'E', 1), '-.', '')"
    small = f"concat(if({written} like '-%', '-0.', '0.'), {zeros}, {digits})"
    return f"if({written} like '%E%', {small}, {written})"


def _whole_digits(kinds: tuple[SqlType, ...]) -> SqlType:
    return decimal_of(max(kinds[0].precision - kinds[0].scale, 1), 0)


def _to_double(rounding: str) -> str:
    """Returns CEIL or FLOOR of a DOUBLE, which is a DOUBLE. From 2^52 on, doubles are whole."""
    return f"if(abs({{0}}) < 4503599627370496D, cast({rounding}({{0}}) as double), {{0}})"


def _as_result(text: str) -> Callable[[Call], str]:
    return lambda call: f"cast({text.replace('{0}', call.texts[0])} as {call.returns.ddl})"


def _is_written(scale: str) -> bool:
    return _INTEGER_TEXT.fullmatch(scale) is not None


def _round_double(call: Call) -> str:
    """Ties go up, to the positive side: 1.5 is 2, and -1.5 is -1."""
    value, scale = call.texts
    if not _is_written(scale):
        return f"cast(odradek_round(cast({value} as string), {scale}, 'up') as double)"
    exact = f"floor(cast({value} as decimal(38,17)) + {_half(int(scale))}, {scale})"
    return (
        f"CASE WHEN {value} >= 0 THEN round({value}, {scale}) WHEN {value} > -1e15D "
        f"THEN cast({exact} as double) ELSE {value} END"
    )


def _half(scale: int) -> str:
    return f"cast('{Decimal(5).scaleb(-scale - 1):f}' as decimal(38,17))"


def _round_decimal(call: Call) -> str:
    """Returns the decimal rounding of ROUND: to the nearest, and ties towards positive infinity."""
    value, scale = call.texts
    if not _is_written(scale):
        return f"cast(odradek_round(cast({value} as string), {scale}, 'up') as {call.returns.ddl})"
    return f"cast(floor({value} + {_half(int(scale))}, {scale}) as {call.returns.ddl})"


def _truncated(call: Call) -> str:
    value, scale = call.texts
    if not _is_written(scale):
        return f"cast(odradek_round(cast({value} as string), {scale}, 'down') as {call.returns.ddl})"
    exact = f"cast({value} as decimal(38,17))" if call.kinds[0].kind == "DOUBLE" else value
    return f"cast(if({value} >= 0, floor({exact}, {scale}), ceil({exact}, {scale})) as {call.returns.ddl})"


def _logarithm(value: str, positive: str) -> str:
    return (
        f"CASE WHEN {value} > 0 THEN {positive} WHEN {value} = 0 THEN double('-Infinity') "
        f"WHEN {value} < 0 THEN double('NaN') END"
    )


SERIES_MAX: Final = 100_000
"""The most numbers of GENERATE_SERIES: one row must not take the memory of all."""


def _series(step: str) -> str:
    """Returns Spark SQL for the numbers from {0} to {1}; null for a step that leads nowhere, and for too many numbers."""
    count = f"abs(cast({{1}} as double) - cast({{0}} as double)) / abs({step}) + 1"
    return (
        f"if({step} = 0 OR ({{1}} > {{0}} AND {step} < 0) OR ({{1}} < {{0}} AND {step} > 0) OR {count} > {SERIES_MAX},"
        f" NULL, sequence({{0}}, {{1}}, {step}))"
    )


def _plain_series(unit: str) -> str:
    """Returns `_series` with steps of 1 towards the end. `unit`: a 1 of the numbers' type."""
    return _series(f"if({{1}} < {{0}}, -{unit}, {unit})")


def _distance(radius: str) -> str:
    """Returns SQL for the distance of two points on a sphere by the haversine formula."""
    half = "power(sin(radians(({2}) - ({0})) / 2), 2)"
    half += " + cos(radians({0})) * cos(radians({2})) * power(sin(radians(({3}) - ({1})) / 2), 2)"
    return (
        "CASE WHEN abs({0}) <= 90 AND abs({2}) <= 90 AND abs({1}) <= 180 AND abs({3}) <= 180 "
        f"THEN 2 * {radius} * asin(sqrt(least(1D, {half}))) END"
    )


_RADIUS: Final = (
    "CASE WHEN {4} IS NULL OR trim({4}) = '' THEN 6371D WHEN lower(trim({4})) IN ('mi', 'mile', 'miles') THEN 3959D "
    "WHEN lower(trim({4})) IN ('km', 'kilometer', 'kilometers', 'kilometre', 'kilometres') THEN 6371D END"
)


def _of_double(name: str, description: str, spark: str | None = None) -> ScalarDefinition:
    return scalar(name, _CATEGORY, description, ("DOUBLE value -> DOUBLE", spark or f"{name.lower()}({{0}})"))


NUMERIC: Final[tuple[ScalarDefinition, ...]] = (
    scalar(
        "ABS",
        _CATEGORY,
        "The absolute value.",
        ("INT value -> INT", "abs({0})"),
        ("BIGINT value -> BIGINT", "abs({0})"),
        ("DEC value -> DEC", "abs({0})"),
        ("DOUBLE value -> DOUBLE", "abs({0})"),
    ),
    _of_double("ACOS", "The arc cosine, in radians; NaN outside -1 to 1."),
    _of_double("ASIN", "The arc sine, in radians; NaN outside -1 to 1."),
    _of_double("ATAN", "The arc tangent, in radians."),
    scalar(
        "ATAN2",
        _CATEGORY,
        "The angle of the point (x, y), in radians.",
        ("DOUBLE y, DOUBLE x -> DOUBLE", "atan2({0}, {1})"),
    ),
    _of_double("CBRT", "The cube root."),
    scalar(
        "CEIL",
        _CATEGORY,
        "The smallest whole number that is not less, of the same type.",
        ("INT value -> INT", "{0}"),
        ("BIGINT value -> BIGINT", "{0}"),
        ("DEC value -> DEC", _as_result("ceil({0})")),
        ("DOUBLE value -> DOUBLE", _to_double("ceil")),
    ),
    _of_double("COS", "The cosine of an angle in radians."),
    _of_double("COSH", "The hyperbolic cosine."),
    _of_double("COT", "The cotangent of an angle in radians; Infinity at 0."),
    _of_double("DEGREES", "Radians as degrees."),
    _of_double("EXP", "e to the power of the value."),
    scalar(
        "FLOOR",
        _CATEGORY,
        "The largest whole number that is not more, of the same type.",
        ("INT value -> INT", "{0}"),
        ("BIGINT value -> BIGINT", "{0}"),
        ("DEC value -> DEC", _as_result("floor({0})")),
        ("DOUBLE value -> DOUBLE", _to_double("floor")),
    ),
    scalar(
        "GENERATE_SERIES",
        "ARRAY",
        "The whole numbers from start to end, both included. Null of more than 100,000 numbers, and of a step of 0, or one that"
        " leads away from the end.",
        ("INT start, INT end -> ARRAY<INT>", _plain_series("1")),
        ("INT start, INT end, INT step -> ARRAY<INT>", _series("{2}")),
        ("BIGINT start, BIGINT end -> ARRAY<BIGINT>", _plain_series("1L")),
        ("BIGINT start, BIGINT end, INT step -> ARRAY<BIGINT>", _series("cast({2} as bigint)")),
    ),
    scalar(
        "GEO_DISTANCE",
        _CATEGORY,
        "The great-circle distance of two points in decimal degrees, in 'KM' (the default, also of a null unit) or 'MILES'.",
        ("DOUBLE lat1, DOUBLE lon1, DOUBLE lat2, DOUBLE lon2 -> DOUBLE", _distance("6371D")),
        ("DOUBLE lat1, DOUBLE lon1, DOUBLE lat2, DOUBLE lon2, STRING unit -> DOUBLE", _distance(_RADIUS)),
    ),
    scalar(
        "GREATEST",
        _CATEGORY,
        "The largest of the values that are not null.",
        ("P value -> P", "{0}"),
        ("P value, P value2, P... others -> P", "greatest({all})"),
        note="A decimal is written with all digits of the result's type; ksqlDB writes the value's digits.",
    ),
    scalar(
        "LEAST",
        _CATEGORY,
        "The smallest of the values that are not null.",
        ("P value -> P", "{0}"),
        ("P value, P value2, P... others -> P", "least({all})"),
        note="A decimal is written with all digits of the result's type; ksqlDB writes the value's digits.",
    ),
    _of_double("LN", "The natural logarithm; -Infinity of 0, NaN below.", _logarithm("{0}", "ln({0})")),
    scalar(
        "LOG",
        _CATEGORY,
        "The natural logarithm, or the one to a base. -Infinity of 0; NaN of what is negative, and to base 0, 1 or less.",
        ("DOUBLE value -> DOUBLE", _logarithm("{0}", "ln({0})")),
        (
            "DOUBLE base, DOUBLE value -> DOUBLE",
            "if({0} <= 0 OR {0} = 1, if({1} IS NULL, NULL, double('NaN')), "
            + _logarithm("{1}", "ln({1}) / ln({0})")
            + ")",
        ),
        note="In ksqlDB's reference LOG of one argument has base 10; both compute the natural logarithm.",
    ),
    scalar("PI", _CATEGORY, "The number pi.", ("-> DOUBLE", "pi()")),
    scalar(
        "POWER",
        _CATEGORY,
        "The base to the power of the exponent; Infinity when that is too much.",
        ("DOUBLE base, DOUBLE exponent -> DOUBLE", "power({0}, {1})"),
    ),
    _of_double("RADIANS", "Degrees as radians."),
    scalar("RANDOM", _CATEGORY, "A random number from 0 to 1.", ("-> DOUBLE", "rand()")),
    scalar(
        "ROUND",
        _CATEGORY,
        "The nearest number with this many decimal places, 0 if not given. Ties go up: -1.5 becomes -1.",
        ("INT value -> BIGINT", "cast({0} as bigint)"),
        ("BIGINT value -> BIGINT", "{0}"),
        ("DEC value -> DEC", _as_result("floor({0} + 0.5BD)"), _whole_digits),
        ("DOUBLE value -> BIGINT", "floor({0} + 0.5D)"),
        ("DEC value, INT scale -> DEC", _round_decimal),
        ("DOUBLE value, INT scale -> DOUBLE", _round_double),
    ),
    scalar(
        "SIGN",
        _CATEGORY,
        "-1, 0 or 1.",
        ("INT value -> INT", "cast(signum({0}) as int)"),
        ("BIGINT value -> INT", "cast(signum({0}) as int)"),
        ("DOUBLE value -> INT", "cast(signum({0}) as int)"),
    ),
    _of_double("SIN", "The sine of an angle in radians."),
    _of_double("SINH", "The hyperbolic sine."),
    _of_double("SQRT", "The square root; NaN of what is negative."),
    _of_double("TAN", "The tangent of an angle in radians."),
    _of_double("TANH", "The hyperbolic tangent."),
    scalar(
        "TRUNC",
        _CATEGORY,
        "The number, cut after this many decimal places, 0 if not given.",
        ("INT value -> BIGINT", "cast({0} as bigint)"),
        ("BIGINT value -> BIGINT", "{0}"),
        ("DEC value -> DEC", _as_result("if({0} >= 0, floor({0}), ceil({0}))"), _whole_digits),
        ("DOUBLE value -> BIGINT", "cast({0} as bigint)"),
        ("DEC value, INT scale -> DEC", _truncated),
        ("DOUBLE value, INT scale -> DOUBLE", _truncated),
    ),
)
