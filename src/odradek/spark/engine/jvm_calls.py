"""Fewer calls of Java for the same work: a list goes in one call, and dropped objects in one message.

A program's plan makes hundreds of small objects in the JVM: columns, and lists of columns. Py4J sends each element of a list
by itself. It asks seven converters about each argument, text and numbers too. And it tells the JVM of each object that Python
has dropped, waits for the reply, and tells it of the next: two of five messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j import protocol
from py4j.java_collections import ListConverter
from py4j.java_gateway import JavaClass, JavaGateway, JavaObject

_PLAIN: Final = frozenset({str, int, float, bool, bytes, bytearray, type(None)})
"""Types that Py4J writes into the message itself."""
_ELEMENTS_MAX: Final = 10
"""The most elements for which `List.of` has a method."""
_DROPPED_MAX: Final = 256
"""The most objects in a message: the JVM's replies to it must fit into a socket's buffer."""
_PERMANENT: Final = frozenset({protocol.ENTRY_POINT_OBJECT_ID, protocol.GATEWAY_SERVER_OBJECT_ID})


def spare_calls(gateway: JavaGateway) -> None:
    """Makes the gateway send lists and dropped objects in fewer messages."""
    client: Any = gateway._gateway_client
    if client.converters:
        client.converters = [QuickConverter(client.converters)]
    if hasattr(client, "finalizer_deque"):
        client.garbage_collect_object = DroppedObjects(client)


class QuickConverter:
    """Converts what Py4J's converters convert. It needs no converter to see that text is text."""

    def __init__(self, converters: Sequence[Any]) -> None:
        self._converters = converters
        self._list_of: Any = None
        """Java's `List.of`, which the first list looks up."""

    def can_convert(self, value: object) -> bool:
        return type(value) not in _PLAIN and self._converter_of(value) is not None

    def convert(self, value: Any, client: Any) -> object:
        converter: Any = self._converter_of(value)
        if isinstance(converter, ListConverter) and type(value) in (list, tuple) and _is_simple(value):
            return self._java_list(value, client)
        return converter.convert(value, client)

    def _converter_of(self, value: object) -> object | None:
        return next((converter for converter in self._converters if converter.can_convert(value)), None)

    def _java_list(self, values: Sequence[object], client: Any) -> object:
        if self._list_of is None:
            self._list_of = JavaClass("java.util.List", client).of
        if len(values) <= _ELEMENTS_MAX:
            return self._list_of(*values)
        whole = JavaClass("java.util.ArrayList", client)()
        for start in range(0, len(values), _ELEMENTS_MAX):
            whole.addAll(self._list_of(*values[start : start + _ELEMENTS_MAX]))
        return whole


def _is_simple(values: Sequence[object]) -> bool:
    """Tells whether `List.of` takes these values as its elements: it refuses null, and takes an array for all of them."""
    return bool(values) and all(type(value) is JavaObject or type(value) is str for value in values)


class DroppedObjects:
    """Tells the JVM which objects Python has dropped: Py4J's thread for it calls this, and sends all that wait at once."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._waiting: deque[Any] = client.finalizer_deque
        self._drop_alone = client.garbage_collect_object

    def __call__(self, target_id: str, enqueue: bool = True) -> None:
        if enqueue:
            self._waiting.appendleft((self._client, target_id))
            return
        ids = [target_id, *self._more(_DROPPED_MAX - 1)]
        dropped = [dropped_id for dropped_id in ids if dropped_id not in _PERMANENT]
        if dropped and self._client.is_connected and not self._are_dropped(dropped):
            for dropped_id in dropped:
                self._drop_alone(dropped_id, False)

    def _more(self, most: int) -> Iterator[str]:
        """Takes what waits, except the word that ends the thread."""
        for _ in range(most):
            try:
                task = self._waiting.pop()
            except IndexError:
                return
            if not isinstance(task, tuple):
                self._waiting.append(task)
                return
            yield task[1]

    def _are_dropped(self, ids: list[str]) -> bool:
        """Tells whether the JVM has replied for each of them."""
        connection: Any = None
        try:
            connection = self._client._get_connection()
            connection.socket.sendall("".join(map(_command, ids)).encode())
            replies = [connection.stream.readline() for _ in ids]
        except (OSError, protocol.Py4JError):
            replies = [b""]
        if all(replies):
            self._client._give_back_connection(connection)
            return True
        if connection is not None:
            connection.close()
        return False


def _command(target_id: str) -> str:
    name, subcommand = protocol.MEMORY_COMMAND_NAME, protocol.MEMORY_DEL_SUBCOMMAND_NAME
    return f"{name}{subcommand}{target_id}\n{protocol.END_COMMAND_PART}"
