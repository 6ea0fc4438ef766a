"""State that earlier versions wrote: pickles, read without running code.

An unpickler finds only types of values. Objects of a program's classes are read as stand-ins, and made from them as objects in
`state_bytes.py` are.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import pickle
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Protocol, Self

Loaded = Callable[[str, str], object]
"""Returns the class for the names of a module and a class, if it is loaded; else None."""


class ObjectMaker(Protocol):
    """Makes the value that represents an object of a named class."""

    def __call__(
        self, module: str, name: str, content: Mapping[str, object] | tuple[object, ...] | str
    ) -> Any:
        """Makes the value. `content`: the fields of an object, the values of a named tuple, or the name of an enum's member."""
        ...


def pickled_value(data: bytes, make: ObjectMaker, loaded: Loaded) -> object:
    """Returns the value of a pickle. An object that occurs twice is made once. Any error of Python's for bytes that hold
    none."""
    return _Revival(make, loaded).again(_OldReader(io.BytesIO(data)).load())


def _old_attribute(owner: object, name: object) -> object:
    """Replaces `getattr` in pickles, where it makes time zones. ValueError for any other use of it."""
    if owner is not zoneinfo.ZoneInfo or name != "_unpickle":
        raise ValueError(f"it asks for the attribute {name!r}: only a time zone may be made so")
    return _time_zone


def _time_zone(key: str, _from_cache: object = True) -> zoneinfo.ZoneInfo:
    return zoneinfo.ZoneInfo(key)


_OLD_TYPES: Final[dict[tuple[str, str], object]] = {
    (kind.__module__, kind.__name__): kind
    for kind in (
        *(set, frozenset, bytearray, complex, list, dict, tuple, range, int, float, str, bytes, bool),
        *(collections.OrderedDict, collections.deque, collections.Counter, collections.defaultdict),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
        *(decimal.Decimal, fractions.Fraction, zoneinfo.ZoneInfo),
    )
} | {("builtins", "getattr"): _old_attribute}


class _OldReader(pickle._Unpickler):
    """Python's own reader in Python, since what its opcodes do can be bounded there.

    Finds the types of values, and stand-ins for all other names: no name is imported, and nothing of theirs is called.

    Only stand-ins are made without a call or filled in afterwards. So bytes change no type, function or value of Python's own.
    """

    stack: list[Any]

    def find_class(self, module: str, name: str) -> object:
        known = _OLD_TYPES.get((module, name))
        if known is not None:
            return known
        return type(name, (StandIn,), {"qualified_name": (module, name)})

    def load_build(self) -> None:
        state = self.stack.pop()
        instance = self.stack[-1]
        if not isinstance(instance, StandIn):
            raise ValueError(f"it sets attributes of a {type(instance).__name__}")
        instance.__setstate__(state)

    def load_newobj(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = _stand_in_type(self.stack[-1])(*args)

    def load_newobj_ex(self) -> None:
        named = self.stack.pop()
        args = self.stack.pop()
        self.stack[-1] = _stand_in_type(self.stack[-1])(*args, **named)

    def load_reduce(self) -> None:
        args = self.stack.pop()
        make = self.stack[-1]
        if not any(make is known for known in (*_OLD_TYPES.values(), _time_zone)):
            make = _stand_in_type(make)
        elif (make is not range and any(type(arg) is range for arg in args)) or (
            make in (bytes, bytearray) and any(type(arg) is int for arg in args)
        ):
            raise ValueError("it makes a value that is larger than its bytes")
        self.stack[-1] = make(*args)

    def load_refused(self) -> None:
        raise ValueError("it makes objects as no version of Odradek wrote them")

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: load_build,
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
        pickle.INST[0]: load_refused,
        pickle.OBJ[0]: load_refused,
    }


def _stand_in_type(kind: object) -> type[StandIn]:
    if isinstance(kind, type) and issubclass(kind, StandIn):
        return kind
    raise ValueError("it makes objects as no version of Odradek wrote them")


class StandIn:
    """An object of a pickle: its class's name, what it is made of, and its fields."""

    qualified_name: tuple[str, str] = ("", "")

    def __new__(cls, *parts: object, **named: object) -> Self:
        instance = super().__new__(cls)
        instance.parts = list(parts)
        instance.fields = dict(named)
        return instance

    def __init__(self, *parts: object, **named: object) -> None:
        self.parts: list[object]
        self.fields: dict[Any, object]

    def __setstate__(self, state: object) -> None:
        if isinstance(state, list):  # a frozen dataclass with slots
            self.parts += state
            return
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.fields.update(part)
            elif part is not None:
                self.parts.append(part)

    def append(self, part: object) -> None:
        self.parts.append(part)

    def extend(self, parts: Iterable[object]) -> None:
        self.parts.extend(parts)

    def __setitem__(self, name: object, part: object) -> None:
        self.fields[name] = part


class _Revival:
    """Makes the values of a pickle, with objects in place of their stand-ins."""

    def __init__(self, make: ObjectMaker, loaded: Loaded) -> None:
        self._make, self._loaded = make, loaded
        self._done: dict[int, object] = {}

    def again(self, member: object) -> object:
        key = id(member)
        if key not in self._done:
            self._done[key] = self._revived(member)
        return self._done[key]

    def _revived(self, value: object) -> object:
        match value:
            case StandIn(qualified_name=("uuid", "UUID"), fields={"int": int(number)}):
                return uuid.UUID(int=number)
            case StandIn():
                return self._make(*value.qualified_name, self._content(value))
            case type():
                raise ValueError(f"it names {value.__module__}.{value.__name__} where a value belongs")
            case list():
                return [self.again(member) for member in value]
            case collections.deque():
                return collections.deque(map(self.again, value), value.maxlen)
            case tuple() | set() | frozenset():
                return type(value)(map(self.again, value))
            case dict():
                revived = value.copy()
                revived.clear()
                revived.update({self.again(key): self.again(member) for key, member in value.items()})
                return revived
            case _ if callable(value):
                raise ValueError("it names a function where a value belongs")
        return value

    def _content(self, stand_in: StandIn) -> Mapping[str, object] | tuple[object, ...] | str:
        kind = self._loaded(*stand_in.qualified_name)
        parts = [self.again(part) for part in stand_in.parts]
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return next((name for name, member in kind.__members__.items() if [member.value] == parts), "?")
        if stand_in.fields or not parts:
            return {str(field): self.again(member) for field, member in stand_in.fields.items()}
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return dict(zip([field.name for field in dataclasses.fields(kind)], parts, strict=True))
        return tuple(parts)
