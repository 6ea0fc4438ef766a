"""State comes back as it was written, from its own form and from pickles of earlier versions; no bytes of a topic run code."""

from __future__ import annotations

import collections
import datetime
import enum
import io
import os
import pickle
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.model.errors import KafkaError
from odradek.streams.processors.state.state_bytes import page_bytes, page_rows, state_bytes, state_value
from odradek.streams.processors.stores import PagedStore
from odradek.streams.processors.task import CachedState, MemoryStore

RAN: list[str] = []


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: Any


@dataclass
class Basket:
    items: list[Any] = field(default_factory=list)
    limit: int = 3

    def __post_init__(self) -> None:
        RAN.append("Basket.__post_init__")


@dataclass(frozen=True, slots=True)
class Sealed:
    at: Any


class Plain:
    def __init__(self, value: Any) -> None:
        RAN.append("Plain.__init__")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and other.value == self.value

    def __hash__(self) -> int:
        return 1


class Custom:
    def __reduce__(self) -> Any:
        return (RAN.append, ("Custom.__reduce__",))


class Restored:
    def __setstate__(self, state: Any) -> None:
        RAN.append("Restored.__setstate__")


class Dying:
    def __del__(self) -> None:
        RAN.append("Dying.__del__")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.uuids()
    | st.dates()
    | st.datetimes(timezones=st.just(datetime.UTC) | st.none() | st.just(ZoneInfo("Europe/Berlin")))
    | st.times()
    | st.timedeltas()
    | st.complex_numbers(allow_nan=False)
    | st.sampled_from([Color.RED, Level.HIGH, range(1, 9, 2), datetime.timezone(datetime.timedelta(hours=2))])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.lists(inner, max_size=3).map(lambda values: collections.deque(values, 5))
        | st.builds(Point, st.integers(), inner)
        | st.builds(Basket, st.lists(inner, max_size=2))
        | st.builds(Sealed, inner)
        | st.builds(Plain, inner)
        | st.dictionaries(st.text(), inner, max_size=3).map(collections.OrderedDict)
    ),
    max_leaves=12,
)


def types_of(value: Any) -> Any:
    """The types all through a value: 1 == True == 1.0."""
    if isinstance(value, dict):
        return type(value), [(types_of(key), types_of(member)) for key, member in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return type(value), [types_of(member) for member in value]
    if isinstance(value, Basket | Plain):
        return type(value), [types_of(part) for part in vars(value).values()]
    return type(value)


@given(VALUES)
@example({1: {2}, "z": frozenset({3}), "c": collections.Counter("aab"), "b": bytearray(b"x")})
@example(collections.defaultdict(list, {"a": [1]}))
@example([-(2**63), 2**63 - 1, 2**63, -(2**63) - 1, 0, float("inf"), -0.0])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    for data in (state_bytes(value), pickle.dumps(value, protocol=5)):
        RAN.clear()
        again = state_value(data)
        assert RAN == []
        assert again == value
        assert types_of(again) == types_of(value)
    assert state_bytes(value) == state_bytes(value)


@given(VALUES, st.data())
def test_bytes_that_were_changed_are_read_as_a_value_or_refused(value: Any, data: st.DataObject) -> None:
    content = bytearray(state_bytes(value))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(KafkaError):
        state_value(bytes(content[: data.draw(st.integers(0, len(content)))]))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_a_value_or_refused(content: bytes) -> None:
    for data in (content, b"\x01" + content, b"\x80\x05" + content, b"\x02" + content):
        for read in (state_value, page_rows):
            with suppress(KafkaError):
                read(data)


def trap(path: str) -> dict[str, bytes]:
    """Bytes that a pickle reader would run, by name."""

    class Trap:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {path}",))

    class Built:
        def __reduce__(self) -> Any:
            return (Restored, (), {"x": 1})

    class Chained:
        def __reduce__(self) -> Any:
            return (getattr, (Basket, "__init__"))

    class Made:
        def __reduce__(self) -> Any:
            return (Basket, ([1],))

    class Evaluated:
        def __reduce__(self) -> Any:
            return (eval, (f"open({path!r}, 'w')",))

    traps = {kind.__name__: pickle.dumps(kind()) for kind in (Trap, Built, Chained, Made, Evaluated)}
    traps |= {
        f"{name} inside": pickle.dumps({"a": [kind()]})
        for name, kind in (("Trap", Trap), ("Eval", Evaluated))
    }
    traps |= {
        f"{name} protocol 0": b"\x80\x02" + pickle.dumps(kind(), 2)[2:] for name, kind in (("Trap", Trap),)
    }
    for kind in (Dying, Custom, Restored):
        out = io.BytesIO(b"")
        out.write(b"\x01o")
        traps[f"object {kind.__name__}"] = out.getvalue() + b"".join(
            [state_bytes(kind.__module__)[1:], state_bytes(kind.__name__)[1:], state_bytes({})[1:]]
        )
    for module, name in (
        ("subprocess", "Popen"),
        ("os", "system"),
        ("builtins", "eval"),
        ("antigravity", "x"),
    ):
        traps[f"{module}.{name}"] = b"\x01o" + b"".join(
            state_bytes(part)[1:] for part in (module, name, {"args": path})
        )
    return traps


@pytest.mark.parametrize("name", trap("x"))
def test_nothing_that_a_topic_holds_is_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RAN.clear()
    data = trap(str(tmp_path / "pwned"))[name]
    store = MemoryStore()
    store.data[b"value/('k',)"] = data
    reads: list[Callable[[], Any]] = [
        lambda: state_value(data),
        lambda: page_rows(data),
        lambda: CachedState(store).get("value", {"key": "k"}),
    ]
    for read in reads:
        with suppress(KafkaError):
            read()
    assert RAN == []
    assert list(tmp_path.iterdir()) == []


OLD_TYPES = (collections.Counter, Fraction, collections.OrderedDict, collections.deque, uuid.UUID, dict)


def named(kind: type) -> bytes:
    return f"c{kind.__module__}\n{kind.__name__}\n".encode()


def settings_of(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_abc")}


@pytest.mark.parametrize("kind", OLD_TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "state", [b"}X\x01\0\0\0ZI1\ns", b"N}X\x01\0\0\0ZI1\ns\x86"], ids=["fields", "slots"]
)
@pytest.mark.parametrize("made", [b"", b")R", b")\x81", b"(i"], ids=["the type", "called", "new", "instance"])
def test_bytes_set_no_attribute_of_python_s_own_types_and_their_values(
    kind: type, state: bytes, made: bytes
) -> None:
    before = settings_of(kind)
    about = b"(i" + named(kind)[1:] if made == b"(i" else named(kind) + made
    with suppress(KafkaError):
        value = state_value(b"\x80\x04" + about + state + b"b.")
        assert not hasattr(value, "Z")
    assert settings_of(kind) == before


@pytest.mark.parametrize(
    "target", [b"cbuiltins\ngetattr\n", b"cbuiltins\ngetattr\n(czoneinfo\nZoneInfo\nX\x09\0\0\0_unpickletR"]
)
def test_bytes_change_no_function_that_stands_for_another(target: bytes) -> None:
    for end in (b".", b"N}X\x0c\0\0\0__defaults__(I1\nts\x86b."):
        with pytest.raises(KafkaError, match="unreadable"):
            state_value(b"\x80\x04" + target + end)
    assert state_value(pickle.dumps(ZoneInfo("Europe/Paris"), 5)) == ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    "data",
    [
        b"cbuiltins\nlist\n(cbuiltins\nrange\n(J\xff\xff\xff\x7ftRtR",
        b"cbuiltins\ntuple\n(cbuiltins\nrange\n(J\xff\xff\xff\x7ftRt\x81",
        b"ccollections\nCounter\n(cbuiltins\nrange\n(J\xff\xff\xff\x7ftRtR",
        b"cbuiltins\nbytes\n(J\xff\xff\xff\x7ftR",
        b"cbuiltins\nbytearray\n(J\xff\xff\xff\x7ftR",
    ],
)
def test_few_bytes_make_no_large_value(data: bytes) -> None:
    with pytest.raises(KafkaError, match="unreadable"):
        state_value(b"\x80\x04" + data + b".")


def test_what_stands_in_a_value_many_times_is_made_once() -> None:
    value: list[Any] = ["x"]
    for _ in range(60):
        value = [value, value]  # 2**60 members for a reader that makes each
    again = state_value(pickle.dumps(value, 5))
    for _ in range(60):
        assert again[0] is again[1]
        again = again[0]
    assert again == ["x"]


@pytest.mark.parametrize(
    "value", [Custom(), Restored(), lambda: 1, object(), io.StringIO(), Plain, os.stat("/")]
)
def test_what_cannot_be_kept_is_named_as_it_is_written(value: Any) -> None:
    RAN.clear()
    with pytest.raises(KafkaError, match=r"cannot be kept: .*Keep values of Python's own types, dataclasses"):
        state_bytes({"a": [value]})
    assert RAN == []


def test_a_class_within_a_function_is_refused_as_it_is_written() -> None:
    @dataclass
    class Local:
        n: int

    with pytest.raises(KafkaError, match="at the top of a module"):
        state_bytes(Local(1))


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(KafkaError, match="contains itself"):
        state_bytes(value)
    with pytest.raises(KafkaError, match="nested too deeply"):
        state_value(b"\x01" + b"l\0\0\0\1" * 100_000 + b"N")


@given(st.dictionaries(st.binary(min_size=1, max_size=20), st.binary(max_size=50), max_size=40))
def test_pages_come_back_also_those_of_earlier_versions(rows: dict[bytes, bytes]) -> None:
    assert page_rows(page_bytes(rows)) == rows
    assert page_rows(pickle.dumps(rows, protocol=5)) == rows


def test_a_store_of_an_earlier_version_goes_on() -> None:
    """Pages and rows as pickles: read, and written in the new form as they change."""
    old = {f"value/({number},)".encode(): pickle.dumps([number, Decimal(number)], 5) for number in range(300)}
    below = MemoryStore()
    filled = PagedStore(below)
    filled.fill(old, "topic")
    for name, data in list(below.data.items()):
        if name.startswith(b"\0rows/"):
            below.data[name] = pickle.dumps(page_rows(data), 5)
    store = PagedStore(below)
    state = CachedState(store)
    assert [state.get("value", {"k": number}) for number in range(300)] == [
        [number, Decimal(number)] for number in range(300)
    ]
    state.put("value", {"k": 7}, [8, Fraction(1, 2), UUID(int=1)])
    state.flush()
    store.flush()
    again = CachedState(PagedStore(below))
    assert again.get("value", {"k": 7}) == [8, Fraction(1, 2), UUID(int=1)]
    assert again.get("value", {"k": 8}) == [8, Decimal(8)]
