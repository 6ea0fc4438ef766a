"""Types of results: a value that code of the program's returns is made one of the declared type exactly, or refused.

Arrow cuts 0.5 to 0 where a whole number is declared, and makes null of a field that a dict does not have. Here every value
is held by its type as it is, or the record that it came from fails. Two roundings stay, and the reference names them: decimals
are rounded half up to the scale, and numbers of double precision to the nearest FLOAT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from odradek.model.lazy import lazy
from odradek.model.near_names import near_name
from odradek.values.arrow_types import declared_name

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyspark.sql.types as spark_types
else:
    pa = lazy("pyarrow")
    spark_types = lazy("pyspark.sql.types")
    np = lazy("numpy")

EXACT: Final = Context(prec=76, rounding=ROUND_HALF_UP)
"""The context for decimals. Python's default keeps 28 digits; a column has up to 38, as does what is added to it."""
_FLOAT_OVERFLOW: Final = (2.0 - 2.0**-24) * 2.0**127
"""The smallest number that is rounded to infinity as a FLOAT."""
_HALF_OVERFLOW: Final = 65520.0
_VARIANT_PARTS: Final = frozenset({"value", "metadata"})

Fitter: TypeAlias = Callable[[Any], object]
"""Returns the value as its type holds it. ValueError explains why it does not; None stays None."""


@dataclass(slots=True)
class ResultType:
    """The type of a column. `is_partial`: it has some of the fields that a result has; the others fit as they are."""

    kind: pa.DataType
    is_partial: bool = False
    _fit: Fitter | None = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> tuple[pa.DataType, bool]:
        return self.kind, self.is_partial

    def __setstate__(self, state: tuple[pa.DataType, bool]) -> None:
        self.kind, self.is_partial = state
        self._fit = None

    def fitted(self, value: object) -> Any:
        """Returns the value as the type holds it, exactly. ValueError where the type cannot hold it."""
        if self._fit is None:
            self._fit = fitter(self.kind, is_partial=self.is_partial)
        try:
            return self._fit(value)
        except ValueError as error:
            raise ValueError(
                f"{value!s:.200} does not fit the type {declared_name(self.kind):.200}: {error}"
            ) from None

    def fitted_before(self, value: object) -> Any:
        """An earlier result. An earlier version of the program, with another type, may have kept one that does not fit."""
        try:
            return self.fitted(value)
        except ValueError:
            return pa.array([value], self.kind)[0].as_py()  # the result as it was then


@cache
def timestamp_type() -> ResultType:
    """Returns the type of a record's timestamp, in milliseconds."""
    return ResultType(pa.int64())


@cache
def headers_type() -> ResultType:
    """Returns the type of a record's headers."""
    return ResultType(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def fitter(kind: pa.DataType, *, is_partial: bool = False) -> Fitter:
    """Returns the conversion to a type. `is_partial`: a dict may have other fields than a struct; they stay as they are."""
    types = pa.types
    if types.is_struct(kind):
        return _variants if _is_variant(kind) else _structs(kind, is_partial=is_partial)
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(kind)
    if types.is_map(kind):
        return _maps(kind)
    if types.is_integer(kind):
        return _integers(kind)
    if types.is_floating(kind):
        return _floats(kind)
    if types.is_decimal(kind):
        return _decimals(kind)
    if types.is_timestamp(kind):
        return _timestamps(kind)
    for is_kind, fit in _SIMPLE:
        if is_kind(kind):
            return fit
    return _others(kind)


def _refuse(value: object, reason: str) -> NoReturn:
    raise ValueError(f"{value!s:.200} {reason}")


def _integers(kind: pa.DataType) -> Fitter:
    bits = kind.bit_width
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def fit(value: object) -> object:
        if type(value) is int:
            number = value
        elif value is None:
            return None
        else:
            number = _whole(value, kind)
        if not low <= number <= high:
            _refuse(number, f"is not between {low} and {high}, which is what {declared_name(kind)} holds")
        return number

    return fit


def _whole(value: object, kind: pa.DataType) -> int:
    """Returns the number that a value is, if it is whole."""
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        _refuse(value, f"is of the type {type(value).__name__}; {declared_name(kind)} holds whole numbers")
    if isinstance(value, (float, Decimal)) and (not math.isfinite(value) or value != int(value)):
        _refuse(value, f"is no whole number, and {declared_name(kind)} holds only such")
    return int(value)


def _floats(kind: pa.DataType) -> Fitter:
    limit = {16: _HALF_OVERFLOW, 32: _FLOAT_OVERFLOW}.get(kind.bit_width)

    def fit(value: object) -> object:
        if value is None:
            return None
        number = value if type(value) is float else _real(value, kind)
        if limit is not None and not -limit < number < limit and math.isfinite(number):
            _refuse(number, f"is too large for {declared_name(kind)}")
        return number

    return fit


def _real(value: object, kind: pa.DataType) -> float:
    """Returns the number of double precision that a value is, if there is one."""
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        _refuse(value, f"is of the type {type(value).__name__}; {declared_name(kind)} holds numbers")
    try:
        number = float(value)  # digits: no text comes here
    except (OverflowError, ValueError):
        _refuse(value, f"is too large for {declared_name(kind)}")
    if isinstance(value, Decimal) and value.is_finite() and math.isinf(number):
        _refuse(value, f"is too large for {declared_name(kind)}")
    if isinstance(value, (int, Decimal)) and math.isfinite(number) and number != value:
        _refuse(value, f"cannot be {declared_name(kind)} exactly: return float(…) of it to have it rounded")
    return number


def _decimals(kind: pa.DataType) -> Fitter:
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def fit(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, np.integer):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            reason = f"is of the type {type(value).__name__}; {declared_name(kind)} holds Decimal and int"
            _refuse(value, f"{reason}: write Decimal(str(x)) for a float")
        number = Decimal(value)
        if not number.is_finite():
            _refuse(value, f"is no number that {declared_name(kind)} holds")
        try:
            rounded = number.quantize(step, context=EXACT)
        except InvalidOperation:
            _refuse(value, f"has more digits than {declared_name(kind)} holds")
        if abs(rounded) >= limit:
            _refuse(value, f"has more digits than {declared_name(kind)} holds")
        return rounded

    return fit


def _booleans(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    _refuse(value, f"is of the type {type(value).__name__}, not True or False")


def _texts(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{value!r:.200} is no text in UTF-8") from None
    if not isinstance(value, str):
        _refuse(value, f"is of the type {type(value).__name__}, not text: write str(…)")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{value!r:.200} is no text that UTF-8 has") from None
    return value


def _binaries(value: object) -> object:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{value!r:.200} is no text that UTF-8 has") from None
    if not isinstance(value, (bytearray, memoryview)):
        _refuse(value, f"is of the type {type(value).__name__}, not bytes")
    return bytes(value)


def _dates(value: object) -> object:
    if value is None or type(value) is date:
        return value
    if isinstance(value, datetime) or not isinstance(value, date):
        _refuse(value, f"is of the type {type(value).__name__}, not a date: write .date() of a datetime")
    return value


def _timestamps(kind: pa.DataType) -> Fitter:
    has_zone = kind.tz is not None
    wanted = "TIMESTAMP has one: write datetime(…, tzinfo=UTC)" if has_zone else "TIMESTAMP_NTZ has none"

    def fit(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, datetime):
            _refuse(value, f"is of the type {type(value).__name__}, not a datetime")
        if (value.utcoffset() is not None) != has_zone:
            _refuse(value, f"has {'no' if has_zone else 'a'} time zone, and {wanted}")
        if getattr(value, "nanosecond", 0):
            _refuse(value, "has nanoseconds, and a timestamp has microseconds")
        try:
            return value.astimezone(UTC) if has_zone else value
        except OverflowError:
            _refuse(value, "is not within the years 1 to 9999 in UTC")

    return fit


def _times(value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, time) or value.tzinfo is not None:
        _refuse(value, f"is of the type {type(value).__name__}, not a time of day without a time zone")
    return value


def _durations(value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, timedelta):
        _refuse(value, f"is of the type {type(value).__name__}, not a timedelta")
    if getattr(value, "nanoseconds", 0):
        _refuse(value, "has nanoseconds, and an interval has microseconds")
    if not -(1 << 63) <= value // timedelta(microseconds=1) < 1 << 63:
        _refuse(value, "is longer than an interval may be")
    return value


def _lists(kind: pa.DataType) -> Fitter:
    element, is_nullable = fitter(kind.value_type), kind.value_field.nullable

    def fit(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, (list, tuple, set, frozenset, range)):
            if not (isinstance(value, np.ndarray) and value.ndim):
                _refuse(value, f"is of the type {type(value).__name__}, not a list")
            value = list(value)
        fitted = [_within(element, part, "[", number, "]") for number, part in enumerate(value)]
        if not is_nullable and None in fitted:
            _refuse(value, "has an element that is None, and the type has none")
        return fitted

    return fit


def _maps(kind: pa.DataType) -> Fitter:
    of_key, of_item = fitter(kind.key_type), fitter(kind.item_type)
    is_nullable = kind.item_field.nullable

    def fit(value: object) -> object:
        if value is None:
            return None
        pairs = list(value.items()) if isinstance(value, Mapping) else _pairs(value)
        fitted = [
            (_within(of_key, key, "key ", key), _within(of_item, content, "[", key, "]"))
            for key, content in pairs
        ]
        if any(key is None for key, _ in fitted):
            _refuse(value, "has a key that is None, and a map has none")
        if not is_nullable and any(content is None for _, content in fitted):
            _refuse(value, "has a value that is None, and the type has none")
        keys = [repr(key) for key, _ in fitted]
        if len(set(keys)) != len(keys):
            _refuse(value, "has a key twice")
        return fitted

    return fit


def _pairs(value: object) -> list[tuple[object, object]]:
    """Returns a map as Arrow gives it to Python."""
    if isinstance(value, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value
    ):
        return [(key, content) for key, content in value]
    _refuse(value, f"is of the type {type(value).__name__}, not a dict")


def _structs(kind: pa.DataType, *, is_partial: bool) -> Fitter:
    if is_partial and not kind.num_fields:
        return lambda value: value
    fields = [(field.name, fitter(field.type), field.nullable) for field in kind]
    names = {name for name, _, _ in fields}

    def fit(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, tuple) and not is_partial:
            value = _named(value, [name for name, _, _ in fields])
        if not isinstance(value, Mapping):
            listed = ", ".join(names)
            _refuse(value, f"is of the type {type(value).__name__}, not a dict of the fields {listed}")
        if not is_partial and value.keys() != names:
            raise ValueError(_strange_fields(value, [name for name, _, _ in fields]))
        fitted = dict(value) if is_partial else {}
        for name, convert, is_nullable in fields:
            fitted[name] = fitted_value = _within(convert, value[name], "", name)
            if fitted_value is None and not is_nullable:
                raise ValueError(f"{name}: None is not allowed, since the field is NOT NULL")
        return fitted

    return fit


def _is_variant(kind: pa.DataType) -> bool:
    """Tells whether a struct is a VARIANT, which Spark marks."""
    return any((part.metadata or {}).get(b"variant") == b"true" for part in kind)


def _variants(value: object) -> object:
    """Returns a `VariantVal` of PySpark, as the struct of its two parts that Arrow and Spark take."""
    if value is None:
        return None
    parts = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    if parts.keys() != _VARIANT_PARTS or not all(isinstance(part, bytes) for part in parts.values()):
        _refuse(value, f"is of the type {type(value).__name__}; VARIANT holds VariantVal.parseJson(…)")
    return dict(parts)


def _named(values: tuple[object, ...], names: list[str]) -> dict[str, object]:
    """Returns a tuple as a dict. A Row and a named tuple have field names; another tuple has the fields in their order."""
    own = getattr(values, "__fields__", None) or getattr(values, "_fields", None)
    if own is None and len(values) != len(names):
        raise ValueError(
            f"it has {len(values)} values, and the type has {len(names)} fields: {', '.join(names)}"
        )
    return dict(zip(own or names, values, strict=True))


def with_dicts(value: Any, kind: pa.DataType) -> object:
    """Returns a fitted value as functions of Spark return it: a map, which Arrow takes as pairs, is a dict, and a VARIANT an
    object."""
    types = pa.types
    if value is None:
        return None
    if types.is_map(kind):
        return {with_dicts(key, kind.key_type): with_dicts(content, kind.item_type) for key, content in value}
    if types.is_struct(kind) and _is_variant(kind):
        return spark_types.VariantVal(value["value"], value["metadata"])
    if types.is_struct(kind):
        return {part.name: with_dicts(value[part.name], part.type) for part in kind}
    if types.is_list(kind) or types.is_large_list(kind):
        return [with_dicts(element, kind.value_type) for element in value]
    return value


def _strange_fields(value: Mapping[object, object], names: list[str]) -> str:
    """Returns why the fields of a dict are not the fields of a struct."""
    unknown = [str(name) for name in value if name not in names]
    missing = [name for name in names if name not in value]
    parts = []
    if unknown:
        near = [close for name in unknown if (close := near_name(name, missing or names))]
        hint = f" (did you mean {', '.join(dict.fromkeys(near))}?)" if near else ""
        parts.append(f"it has {', '.join(unknown)}, which the type does not have{hint}")
    if missing:
        parts.append(f"it lacks {', '.join(missing)}: write None for a null")
    return f"the dict has other fields than the type: {'; '.join(parts)}"


def _within(convert: Fitter, value: object, *path: object) -> object:
    """Returns the value of a part; the error names the part."""
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f"{''.join(f'{part!s:.60}' for part in path)}: {error}") from None


def _others(kind: pa.DataType) -> Fitter:
    """Types that few columns have: Arrow converts them."""

    def fit(value: object) -> object:
        try:
            pa.array([value], kind)
        except Exception as error:
            raise ValueError(f"{value!s:.200} does not fit: {error}") from error
        return value

    return fit


_SIMPLE: Final[Iterable[tuple[Callable[[Any], bool], Fitter]]] = (
    (lambda kind: pa.types.is_boolean(kind), _booleans),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _texts),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), _binaries),
    (lambda kind: pa.types.is_date(kind), _dates),
    (lambda kind: pa.types.is_time(kind), _times),
    (lambda kind: pa.types.is_duration(kind), _durations),
)
