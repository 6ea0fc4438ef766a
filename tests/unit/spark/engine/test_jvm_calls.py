"""Calls of a JVM: lists go in one call, and dropped objects in one message."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("py4j")

from py4j import protocol
from py4j.java_collections import ListConverter, MapConverter
from py4j.java_gateway import JavaMember, JavaObject

from odradek.spark.engine.jvm_calls import DroppedObjects, QuickConverter, spare_calls

END_OF_THREAD = "__shutdown__"


class Counted(ListConverter):  # type: ignore[misc]
    """Counts what it is asked about."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def can_convert(self, value: object) -> bool:
        self.asked.append(value)
        return bool(super().can_convert(value))


class Jvm:
    """Answers as Py4J's gateway does, and keeps the calls."""

    def __init__(self) -> None:
        self.gateway_property = SimpleNamespace(pool=None, enable_memory_management=False, auto_field=False)
        self.address, self.port = "127.0.0.1", 1
        self.converters: list[Any] = [MapConverter(), ListConverter()]
        self.calls: list[str] = []
        self.count = 0

    def send_command(self, command: str) -> str:
        parts = command.split("\n")
        if parts[0] == protocol.REFLECTION_COMMAND_NAME.strip():
            return f"{protocol.SUCCESS}{protocol.METHOD_TYPE}"
        self.count += 1
        is_new = parts[0] == protocol.CONSTRUCTOR_COMMAND_NAME.strip()
        name = parts[1] if is_new else parts[2]
        self.calls.append(f"{name}/{len([part for part in parts[2 if is_new else 3 :] if part]) - 1}")
        return f"{protocol.SUCCESS}{protocol.LIST_TYPE}o{self.count}"


def _object(client: Any, number: int = 0) -> JavaObject:
    return JavaObject(f"column{number}", client)


@pytest.fixture
def jvm() -> Any:
    jvm = Jvm()
    spare_calls(SimpleNamespace(_gateway_client=jvm))
    return jvm


def _send(jvm: Any, value: object) -> list[str]:
    JavaMember("select", None, "o", jvm)(value)
    return list(jvm.calls)


@pytest.mark.parametrize(
    ("count", "calls"),
    [
        (1, ["of/1"]),
        (10, ["of/10"]),
        (12, ["java.util.ArrayList/0", "of/10", "addAll/1", "of/2", "addAll/1"]),
    ],
)
def test_a_list_of_objects_is_sent_in_calls_of_ten_elements(jvm: Any, count: int, calls: list[str]) -> None:
    assert _send(jvm, [_object(jvm, number) for number in range(count)]) == [*calls, "select/1"]


def test_a_list_of_text_is_sent_in_one_call(jvm: Any) -> None:
    assert _send(jvm, ["a", "b"]) == ["of/2", "select/1"]


@pytest.mark.parametrize(
    "values", [[], ["a", None], [1, 2], [["a"]]], ids=["empty", "null", "numbers", "list"]
)
def test_other_lists_are_sent_as_py4j_sends_them(jvm: Any, values: list[Any]) -> None:
    sent = _send(jvm, values)
    assert sent[0] == "java.util.ArrayList/0"
    assert [call for call in sent if call == "add/1"] == ["add/1"] * len(values)


def test_no_converter_is_asked_about_what_needs_none() -> None:
    counted = Counted()
    quick = QuickConverter([counted])
    assert not any(quick.can_convert(value) for value in ("a", 1, 1.5, True, None, b"x", bytearray(b"x")))
    assert counted.asked == []
    assert quick.can_convert(["a"])


def test_converters_that_come_later_are_asked_too() -> None:
    converters: list[Any] = []
    quick = QuickConverter(converters)
    assert not quick.can_convert(["a"])
    converters.append(ListConverter())
    assert quick.can_convert(["a"])


class Dropping:
    """A client whose JVM answers about dropped objects, or does not."""

    def __init__(self, replies: list[bytes]) -> None:
        self.finalizer_deque: deque[Any] = deque()
        self.is_connected = True
        self.sent: list[str] = []
        self.alone: list[str] = []
        self.is_open = True
        self.is_back = False
        self.socket = SimpleNamespace(sendall=lambda data: self.sent.append(data.decode()))
        self.stream = SimpleNamespace(readline=lambda: replies.pop(0) if replies else b"")

    def garbage_collect_object(self, target_id: str, enqueue: bool = True) -> None:
        assert not enqueue
        self.alone.append(target_id)

    def close(self) -> None:
        self.is_open = False

    def _get_connection(self) -> Any:
        return self

    def _give_back_connection(self, connection: Any) -> None:
        self.is_back = connection is self


def test_all_dropped_objects_that_wait_go_in_one_message() -> None:
    client = Dropping([b"!yv\n"] * 3)
    drop = DroppedObjects(client)
    for name in ("o1", "o2", protocol.GATEWAY_SERVER_OBJECT_ID, "o3"):
        drop(name)
    assert client.sent == []
    first = client.finalizer_deque.pop()  # as the thread does
    drop(first[1], False)
    assert client.sent == ["m\nd\no1\ne\nm\nd\no2\ne\nm\nd\no3\ne\n"]
    assert (client.is_back, client.is_open, client.alone) == (True, True, [])


def test_a_message_has_a_limit_and_leaves_the_rest() -> None:
    client = Dropping([b"!yv\n"] * 300)
    drop = DroppedObjects(client)
    for number in range(300):
        drop(f"o{number}")
    drop("first", False)
    assert client.sent[0].count("m\nd\n") == 256
    assert len(client.finalizer_deque) == 45


def test_the_word_that_ends_the_thread_stays_where_it_was() -> None:
    client = Dropping([b"!yv\n"] * 9)
    drop = DroppedObjects(client)
    drop("o1")
    client.finalizer_deque.appendleft(END_OF_THREAD)
    drop("o0", False)
    assert client.sent == ["m\nd\no0\ne\nm\nd\no1\ne\n"]
    assert list(client.finalizer_deque) == [END_OF_THREAD]


def test_objects_are_dropped_one_by_one_where_the_connection_breaks() -> None:
    client = Dropping([b"!yv\n"])
    drop = DroppedObjects(client)
    drop("o1")
    drop("o0", False)
    assert (client.alone, client.is_open, client.is_back) == (["o0", "o1"], False, False)


def test_nothing_is_sent_to_a_jvm_that_is_gone() -> None:
    client = Dropping([])
    client.is_connected = False
    DroppedObjects(client)("o0", False)
    assert (client.sent, client.alone) == ([], [])
