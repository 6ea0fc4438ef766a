"""State as bytes: what an operator keeps, in changelog topics and checkpoints. Reading it runs no code.

A value is a tag and its content. Values of Python's own types are written as they are; an object of a program's class as the
class's name and the object's fields. Reading fills a new object in field by field: no constructor, no `__setstate__` and no
property runs, and the class must be loaded already. Classes that define how they are pickled, or have a `__del__`, are
refused when they are written and when they are read: so are the standard library's classes.

Earlier versions wrote pickles: `state_pickles.py`.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import struct
import sys
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.streams.processors.state import state_columns
from odradek.streams.processors.state.state_pickles import ObjectMaker, pickled_value

_VERSION: Final = b"\x01"
"""The first byte of a value. A pickle begins with 0x80."""
_PICKLED: Final = b"\x80"
_PAGE_VERSION: Final = b"\x02"
_LENGTH: Final = struct.Struct(">I")
_INT: Final = struct.Struct(">q")
_FLOAT: Final = struct.Struct(">d")
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MICROSECONDS: Final = struct.Struct(">iiI")

Write = Callable[[Any, list[bytes]], None]


# ---- writing


def state_bytes(value: object) -> bytes:
    """Returns the bytes of a value. KafkaError INVALID_RECORD for what they cannot hold; it names what they can."""
    parts = [_VERSION]
    try:
        _write(value, parts)
    except RecursionError:
        raise _unkept("a value of state contains itself, or is nested too deeply") from None
    return b"".join(parts)


def _write(value: object, parts: list[bytes]) -> None:
    write = _WRITERS.get(type(value))
    if write is None:
        _write_object(value, parts)
    else:
        write(value, parts)


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + _LENGTH.pack(len(content)) + content


def _write_int(value: int, parts: list[bytes]) -> None:
    if _INT_MIN <= value <= _INT_MAX:
        parts.append(b"i" + _INT.pack(value))
    else:
        parts.append(_sized(b"I", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)))


def _write_text(value: str, parts: list[bytes]) -> None:
    content = value.encode("utf-8", "surrogatepass")
    parts.append(b"s" + _LENGTH.pack(len(content)) + content)


def _members(tag: bytes) -> Write:
    def write(value: Any, parts: list[bytes]) -> None:
        parts.append(tag + _LENGTH.pack(len(value)))
        for member in value:
            _write(member, parts)

    return write


def _pairs(tag: bytes) -> Write:
    def write(value: Any, parts: list[bytes]) -> None:
        parts.append(tag + _LENGTH.pack(len(value)))
        for key, member in value.items():
            _write(key, parts)
            _write(member, parts)

    return write


def _write_dict(value: dict[object, object], parts: list[bytes]) -> None:
    columns = state_columns.written(value) if len(value) >= state_columns.ENTRIES_MIN else None
    if columns is None:
        _write_pairs(value, parts)
    else:
        parts.append(columns)


_write_pairs: Final = _pairs(b"d")


def _write_defaults(value: collections.defaultdict[object, object], parts: list[bytes]) -> None:
    factory = value.default_factory
    name = "" if factory is None else _FACTORY_NAMES.get(factory)
    if name is None:
        raise _unkept(
            f"a defaultdict of state has the factory {factory!r}: expected one of Python's own types"
        )
    parts.append(b"F")
    _write_text(name, parts)
    _pairs(b"d")(value, parts)


def _write_deque(value: collections.deque[object], parts: list[bytes]) -> None:
    parts.append(b"q")
    _write(value.maxlen, parts)
    _members(b"l")(list(value), parts)


def _write_zone(zone: datetime.tzinfo | None, parts: list[bytes]) -> None:
    if zone is None:
        parts.append(b"N")
    elif type(zone) is datetime.timezone:
        _write(zone.utcoffset(None), parts)
    elif type(zone) is zoneinfo.ZoneInfo and zone.key:
        _write_text(zone.key, parts)
    else:
        raise _unkept(
            f"a time of state has the zone {zone!r}: expected datetime.timezone or zoneinfo.ZoneInfo"
        )


def _write_datetime(value: datetime.datetime, parts: list[bytes]) -> None:
    parts.append(b"m")
    _write_text(value.replace(tzinfo=None).isoformat(), parts)
    _write_int(value.fold, parts)
    _write_zone(value.tzinfo, parts)


def _write_time(value: datetime.time, parts: list[bytes]) -> None:
    parts.append(b"h")
    _write_text(value.replace(tzinfo=None).isoformat(), parts)
    _write_int(value.fold, parts)
    _write_zone(value.tzinfo, parts)


def _write_timedelta(value: datetime.timedelta, parts: list[bytes]) -> None:
    parts.append(b"w" + _MICROSECONDS.pack(value.days, value.seconds, value.microseconds))


def _write_timezone(value: datetime.timezone, parts: list[bytes]) -> None:
    parts.append(b"z")
    _write_timedelta(value.utcoffset(None), parts)


_FACTORY_NAMES: Final[dict[Any, str]] = {
    kind: kind.__name__
    for kind in (int, float, str, bytes, bool, list, dict, set, tuple, collections.Counter)
}
_FACTORIES: Final = {name: kind for kind, name in _FACTORY_NAMES.items()}
_WRITERS: Final[dict[type, Write]] = {
    type(None): lambda value, parts: parts.append(b"N"),
    bool: lambda value, parts: parts.append(b"1" if value else b"0"),
    int: _write_int,
    float: lambda value, parts: parts.append(b"f" + _FLOAT.pack(value)),
    complex: lambda value, parts: parts.append(b"c" + _FLOAT.pack(value.real) + _FLOAT.pack(value.imag)),
    str: _write_text,
    bytes: lambda value, parts: parts.append(_sized(b"b", value)),
    bytearray: lambda value, parts: parts.append(_sized(b"B", bytes(value))),
    list: _members(b"l"),
    tuple: _members(b"t"),
    set: _members(b"S"),
    frozenset: _members(b"Z"),
    dict: _write_dict,
    collections.OrderedDict: _pairs(b"O"),
    collections.Counter: _pairs(b"C"),
    collections.defaultdict: _write_defaults,
    collections.deque: _write_deque,
    range: lambda value, parts: _members(b"r")((value.start, value.stop, value.step), parts),
    decimal.Decimal: lambda value, parts: parts.append(_sized(b"D", str(value).encode())),
    fractions.Fraction: lambda value, parts: parts.append(_sized(b"R", str(value).encode())),
    uuid.UUID: lambda value, parts: parts.append(b"u" + value.bytes),
    datetime.date: lambda value, parts: parts.append(b"a" + _LENGTH.pack(value.toordinal())),
    datetime.datetime: _write_datetime,
    datetime.time: _write_time,
    datetime.timedelta: _write_timedelta,
    datetime.timezone: _write_timezone,
}


def _write_object(value: Any, parts: list[bytes]) -> None:
    kind = type(value)
    problem = _problem_with(kind)
    if problem is None and _loaded(kind.__module__, kind.__qualname__) is not kind:
        problem = "it must be defined at the top of a module that Spark's workers can import"
    if problem is not None:
        raise _unkept(
            f"state holds an object of {kind.__module__}.{kind.__qualname__}, which cannot be kept: {problem}."
            " Keep values of Python's own types, dataclasses, named tuples or enums"
        )
    if issubclass(kind, enum.Enum):
        parts.append(b"e")
        content: object = value.name
    else:
        parts.append(b"o")
        content = tuple(value) if issubclass(kind, tuple) else _fields(value)
    _write_text(kind.__module__, parts)
    _write_text(kind.__qualname__, parts)
    _write(content, parts)


def _fields(value: object) -> dict[str, object]:
    """Returns all that an object holds, in its dictionary and in slots."""
    held = dict(getattr(value, "__dict__", {}))
    for name in _slots(type(value)):
        try:
            held[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return held


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [
        f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]


def _unkept(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, text)


# ---- which classes


_PICKLING: Final = ("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")
_STATES: Final = ("__getstate__", "__setstate__")


def _problem_with(kind: type) -> str | None:
    """Returns why objects of the class cannot be stored; None: they can."""
    package = kind.__module__.partition(".")[0]
    if package in sys.stdlib_module_names and package != "__main__":
        return "it belongs to Python's library"
    if package == "odradek":
        return "it belongs to Odradek"
    if any("__del__" in base.__dict__ for base in kind.__mro__):
        return "it has a method __del__"
    if issubclass(kind, enum.Enum):
        return None
    if _is_named_tuple(kind):
        return None
    if kind.__new__ is not object.__new__:
        return "it makes its objects itself (__new__, or a base that is no class of Python)"
    own = [name for name in _PICKLING if _is_defined(kind, name)]
    if not dataclasses.is_dataclass(kind):
        own += [name for name in _STATES if _is_defined(kind, name)]
    return f"it has a method {own[0]}" if own else None


def _is_defined(kind: type, name: str) -> bool:
    return any(name in base.__dict__ for base in kind.__mro__ if base is not object)


def _is_named_tuple(kind: type) -> bool:
    return (
        issubclass(kind, tuple)
        and kind.__bases__ == (tuple,)
        and isinstance(getattr(kind, "_fields", None), tuple)
        and not any(_is_defined(kind, name) for name in (*_STATES, *_PICKLING[:2]))
    )


def _loaded(module: str, name: str) -> object:
    """Returns the object of this name in a loaded module; None where there is none. Imports nothing."""
    namespace: Any = sys.modules.get(module)
    for part in name.split("."):
        namespace = (
            None
            if namespace is None
            else vars(namespace).get(part)
            if hasattr(namespace, "__dict__")
            else None
        )
    return namespace


def make_object(module: str, name: str, content: Mapping[str, Any] | tuple[Any, ...] | str) -> Any:
    """Returns an object of a class that is loaded, filled in without running any of its code."""
    kind = _loaded(module, name)
    if not isinstance(kind, type):
        raise ValueError(f"there is no class {module}.{name} in this program")
    problem = _problem_with(kind)
    if problem is not None:
        raise ValueError(f"objects of {module}.{name} are not read: {problem}")
    if issubclass(kind, enum.Enum):
        return kind.__members__[str(content)]
    if issubclass(kind, tuple):
        values = tuple(content)
        if len(values) != len(kind._fields):  # type: ignore[attr-defined]
            raise ValueError(f"{module}.{name} has other fields now")
        return tuple.__new__(kind, values)
    if not isinstance(content, Mapping):
        raise ValueError(f"the fields of {module}.{name} are missing")
    instance = object.__new__(kind)
    slots = _slots(kind)
    for field, value in content.items():
        if field in slots:
            object.__setattr__(instance, field, value)
        elif hasattr(instance, "__dict__"):
            instance.__dict__[field] = value
        else:
            raise ValueError(f"{module}.{name} has no field {field}")
    return instance


# ---- reading


def state_value(data: bytes, make: ObjectMaker = make_object) -> Any:
    """Returns the value of `state_bytes`, or of an earlier version's pickle. KafkaError INVALID_RECORD for other bytes."""
    try:
        if data[:1] == _PICKLED:
            return pickled_value(data, make, _loaded)
        return _Reader(data, make).whole()
    except (MemoryError, RecursionError):
        reason = "it is nested too deeply, or too large"
    except Exception as error:  # noqa: BLE001 - bytes that others may have written can be wrong in any way
        reason = str(error) or type(error).__name__
    raise KafkaError(ErrorCode.INVALID_RECORD, f"a row of state is unreadable: {reason}")


class _Reader:
    """Reads one value from its bytes. ValueError for what is none."""

    def __init__(self, data: bytes, make: ObjectMaker) -> None:
        if data[:1] != _VERSION:
            raise ValueError(
                f"its format {data[:1].hex() or 'is empty'} is unknown to this version of Odradek"
            )
        self._data = data
        self._position = 1
        self._make = make

    def whole(self) -> Any:
        value = self.value()
        if self._position != len(self._data):
            raise ValueError("there are bytes after it")
        return value

    def value(self) -> Any:
        tag = self.read_bytes(1)
        read = _READERS.get(tag)
        if read is None:
            raise ValueError(f"there is no type {tag!r}")
        return read(self)

    def read_bytes(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise ValueError("its end is missing")
        content = self._data[self._position : end]
        self._position = end
        return content

    def int64(self) -> int:
        number: int = _INT.unpack(self.read_bytes(8))[0]
        return number

    def float64(self) -> float:
        number: float = _FLOAT.unpack(self.read_bytes(8))[0]
        return number

    def sized(self) -> bytes:
        return self.read_bytes(self.length())

    def length(self) -> int:
        number: int = _LENGTH.unpack(self.read_bytes(4))[0]
        return number

    def text(self) -> str:
        return self.sized().decode("utf-8", "surrogatepass")

    def members(self) -> list[Any]:
        return [self.value() for _ in range(self._count(1))]

    def pairs(self) -> dict[Any, Any]:
        return {self.value(): self.value() for _ in range(self._count(2))}

    def columns(self, read: Callable[[state_columns.StateColumnReader], dict[Any, Any]]) -> dict[Any, Any]:
        reader = state_columns.StateColumnReader(self._data, self._position)
        value = read(reader)
        self._position = reader.position
        return value

    def _count(self, bytes_each: int) -> int:
        count = self.length()
        if count * bytes_each > len(self._data) - self._position:
            raise ValueError("its end is missing")
        return count

    def typed(self, *kinds: type) -> Any:
        value = self.value()
        if type(value) not in kinds:
            raise ValueError(f"a {type(value).__name__} is in a wrong place")
        return value

    def zone(self) -> datetime.tzinfo | None:
        zone = self.typed(type(None), datetime.timedelta, str)
        if isinstance(zone, datetime.timedelta):
            return datetime.timezone(zone)
        return None if zone is None else zoneinfo.ZoneInfo(zone)

    def moment(self, kind: Any) -> Any:
        text, fold = self.typed(str), self.typed(int)
        return kind.fromisoformat(text).replace(fold=fold, tzinfo=self.zone())

    def object(self, *contents: type) -> Any:
        return self._make(self.typed(str), self.typed(str), self.typed(*contents))

    def counted(self) -> dict[Any, Any]:
        return collections.Counter(self.pairs())

    def defaults(self) -> dict[Any, Any]:
        name = self.typed(str)
        return collections.defaultdict(_FACTORIES[name] if name else None, self.typed(dict))

    def deque(self) -> Any:
        size = self.typed(type(None), int)
        return collections.deque(self.typed(list), size)


_READERS: Final[dict[bytes, Callable[[_Reader], object]]] = {
    b"N": lambda reader: None,
    b"1": lambda reader: True,
    b"0": lambda reader: False,
    b"i": _Reader.int64,
    b"I": lambda reader: int.from_bytes(reader.sized(), "big", signed=True),
    b"f": _Reader.float64,
    b"c": lambda reader: complex(reader.float64(), reader.float64()),
    b"s": _Reader.text,
    b"b": _Reader.sized,
    b"B": lambda reader: bytearray(reader.sized()),
    b"l": _Reader.members,
    b"t": lambda reader: tuple(reader.members()),
    b"S": lambda reader: set(reader.members()),
    b"Z": lambda reader: frozenset(reader.members()),
    b"d": _Reader.pairs,
    state_columns.WINDOWS: lambda reader: reader.columns(state_columns.StateColumnReader.windows),
    state_columns.RECORDS: lambda reader: reader.columns(state_columns.StateColumnReader.records),
    b"O": lambda reader: collections.OrderedDict(reader.pairs()),
    b"C": _Reader.counted,
    b"F": _Reader.defaults,
    b"q": _Reader.deque,
    b"r": lambda reader: range(*reader.members()),
    b"D": lambda reader: decimal.Decimal(reader.sized().decode()),
    b"R": lambda reader: fractions.Fraction(reader.sized().decode()),
    b"u": lambda reader: uuid.UUID(bytes=reader.read_bytes(16)),
    b"a": lambda reader: datetime.date.fromordinal(reader.length()),
    b"m": lambda reader: reader.moment(datetime.datetime),
    b"h": lambda reader: reader.moment(datetime.time),
    b"w": lambda reader: datetime.timedelta(*_MICROSECONDS.unpack(reader.read_bytes(_MICROSECONDS.size))),
    b"z": lambda reader: datetime.timezone(reader.typed(datetime.timedelta)),
    b"o": lambda reader: reader.object(dict, tuple),
    b"e": lambda reader: reader.object(str),
}


# ---- pages


def page_bytes(rows: Mapping[bytes, bytes]) -> bytes:
    """Returns the bytes of rows that are kept together: a count, all lengths, then names and data."""
    lengths = [length for name, data in rows.items() for length in (len(name), len(data))]
    numbers = struct.pack(f">{1 + len(lengths)}I", len(rows), *lengths)
    return b"".join([_PAGE_VERSION, numbers, *(part for row in rows.items() for part in row)])


def page_rows(data: bytes) -> dict[bytes, bytes]:
    """Returns the rows of `page_bytes`, or of an earlier version's pickle. KafkaError INVALID_RECORD for other bytes."""
    if data[:1] == _PICKLED:
        rows = state_value(data)
        if isinstance(rows, dict) and all(type(part) is bytes for row in rows.items() for part in row):
            return rows
    elif data[:1] == _PAGE_VERSION and len(data) >= 1 + _LENGTH.size:
        (count,) = _LENGTH.unpack_from(data, 1)
        end = 1 + _LENGTH.size * (1 + 2 * count)
        if end <= len(data):
            lengths = struct.unpack_from(f">{2 * count}I", data, 1 + _LENGTH.size)
            if end + sum(lengths) == len(data):
                return dict(_cut(data, end, lengths))
    raise KafkaError(ErrorCode.INVALID_RECORD, "a page of state is unreadable")


def _cut(data: bytes, position: int, lengths: tuple[int, ...]) -> Iterable[tuple[bytes, bytes]]:
    for index in range(0, len(lengths), 2):
        middle = position + lengths[index]
        end = middle + lengths[index + 1]
        yield data[position:middle], data[middle:end]
        position = end
