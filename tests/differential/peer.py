"""One connection to a broker that remembers, in a form that can be compared, what the broker answered.

A script calls `ask` for what is to be compared, `quietly` for what only prepares, and `until` where a broker may take
its time: Kafka's metadata follows its controller a little later, and its coordinators load when they are first asked.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from tests.differential.allowed import SILENCE
from tests.differential.plain import Names, plain

from odradek.protocol import (
    Message,
    RequestHeader,
    api_by_name,
    api_of,
    decode_response,
    encode_request,
)

ANSWER_SECONDS_MAX = 10.0
ASKING_AGAIN_MAX = 400
ASKING_AGAIN_SECONDS = 0.02
CLOSED = "the connection was closed"


class NotServedError(Exception):
    """The broker does not offer an API that a script needs."""


class Peer:
    """`steps` is what was asked and answered, in order: {"step", "api", "version", "answer"}."""

    def __init__(self, address: tuple[str, int], script: str) -> None:
        self.address = address
        self.script = script
        self.steps: list[dict[str, Any]] = []
        self.names = Names()
        self._line = Line(address)
        offered = self._line.call(api_by_name("ApiVersions").request(), 0, "")
        self.offered = {
            api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in offered.api_keys
        }
        self._others: dict[str, Line] = {}

    def ask(
        self,
        step: str,
        request: Message,
        version: int | None = None,
        *,
        line: str = "",
        only: Callable[[Any], Any] = lambda reply: reply,
    ) -> Any:
        """Send a request, and note the answer under the name `step`; `only` cuts out what is to be noted."""
        used = self._version(request, version)
        try:
            response = self._line_named(line).call(request, used, self.script + line)
        except (ConnectionError, TimeoutError) as failed:
            self._close(line)
            self._note(step, request, used, SILENCE if isinstance(failed, TimeoutError) else CLOSED)
            return None
        self._note(step, request, used, plain(only(response), used, self.names))
        return response

    def quietly(self, request: Message, version: int | None = None, *, line: str = "") -> Any:
        """Send a request whose answer is not compared."""
        return self._line_named(line).call(request, self._version(request, version), self.script + line)

    def until(
        self, done: Callable[[Any], bool], request: Message, version: int | None = None, *, line: str = ""
    ) -> Any:
        """Ask quietly, again and again, until the answer is one that is `done`; or long enough: what is asked next
        shows what is wrong."""
        for _ in range(ASKING_AGAIN_MAX):
            if done(response := self.quietly(request, version, line=line)):
                break
            time.sleep(ASKING_AGAIN_SECONDS)
        return response

    def send(self, request: Message, version: int | None = None, *, line: str = "") -> None:
        """Send a request whose answer comes later, or never."""
        self._line_named(line).send(request, self._version(request, version), self.script + line)

    def note(self, step: str, request: Message, response: Any) -> None:
        """Note an answer in the newest version that a script got quietly."""
        version = self._version(request, None)
        self._note(step, request, version, plain(response, version, self.names))

    def unanswered(self, request: Message, version: int | None = None) -> None:
        """Send a request that is not answered when all goes well."""
        self._line.send(request, self._version(request, version), self.script)
        self._line.forget()

    def answered(self, step: str, *, line: str = "", only: Callable[[Any], Any] = lambda reply: reply) -> Any:
        """Note the answer to what was sent first on this line."""
        request, version, response = self._line_named(line).receive()
        self._note(step, request, version, plain(only(response), version, self.names))
        return response

    def ask_raw(self, step: str, frame: bytes, *, head: int | None = None) -> None:
        """Send a frame made by hand on a connection of its own; note the answer's first bytes, or the end of it."""
        line = Line(self.address)
        try:
            response = line.call_raw(frame)[:head].hex()
        except ConnectionError:
            response = CLOSED
        finally:
            line.close()
        self.steps.append({"step": step, "api": "raw", "version": 0, "answer": response})

    def close(self) -> None:
        self._line.close()
        for line in self._others.values():
            line.close()

    def _version(self, request: Message, version: int | None) -> int:
        api = api_of(request)
        if api.key not in self.offered:
            raise NotServedError(api.name)
        return api.latest_stable if version is None else version

    def _note(self, step: str, request: Message, version: int, response: Any) -> None:
        name = api_of(request).name
        self.steps.append({"step": step, "api": name, "version": version, "answer": response})

    def _line_named(self, name: str) -> Line:
        if not name:
            return self._line
        if name not in self._others:
            self._others[name] = Line(self.address)
        return self._others[name]

    def _close(self, name: str) -> None:
        """Begin a new connection in place of the connection that the broker closed."""
        self._line_named(name).close()
        if name:
            del self._others[name]
        else:
            self._line = Line(self.address)


class Line:
    """One socket: requests out, answers in, in order."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        self._sent: list[tuple[Message, int, int]] = []
        self._count = 0

    def call(self, request: Message, version: int, client_id: str) -> Any:
        self.send(request, version, client_id)
        return self.receive()[2]

    def send(self, request: Message, version: int, client_id: str) -> None:
        self._count += 1
        header = RequestHeader(api_of(request).key, version, self._count, client_id)
        self._socket.sendall(encode_request(header, request))
        self._sent.append((request, version, self._count))

    def receive(self) -> tuple[Message, int, Any]:
        """The request, its version and the answer to it."""
        request, version, expected = self._sent.pop(0)
        correlation_id, response = decode_response(api_of(request).key, version, self._frame())
        assert correlation_id == expected
        return request, version, response

    def forget(self) -> None:
        """Expect no answer to the request that was sent last."""
        self._sent.pop()

    def call_raw(self, frame: bytes) -> bytes:
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self._frame()

    def close(self) -> None:
        self._socket.close()

    def _frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise ConnectionError(f"closed after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)
