"""One connection to a broker that remembers, in a form that can be compared, what the broker answered.

A script calls `ask` for what is to be compared, `quietly` for what only prepares, and `until` where a broker may take
its time: Kafka's metadata follows its controller a little later, and its coordinators load when they are first asked.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from tests.differential.allowed import SILENCE
from tests.differential.plain import Names, plain
from tests.kit.frames import framed
from tests.kit.wire import BlockingWire

from odradek.protocol import Message, api_by_name, api_of

ANSWER_SECONDS_MAX = 10.0
ASKING_AGAIN_MAX = 400
ASKING_AGAIN_SECONDS = 0.02
CLOSED = "the connection was closed"


class NotServedError(Exception):
    """The broker does not offer an API that a script needs."""


class Asker:
    """`steps` is what was asked and answered, in order: {"step", "api", "version", "answer"}."""

    def __init__(self, address: tuple[str, int], script: str) -> None:
        self.address = address
        self.script = script
        self.steps: list[dict[str, Any]] = []
        self.names = Names()
        self._line = self._connected()
        offered = self._line.ask(api_by_name("ApiVersions").request(), 0)
        self.offered = {
            api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in offered.api_keys
        }
        self._others: dict[str, BlockingWire] = {}
        self._later: defaultdict[str, deque[tuple[Message, int]]] = defaultdict(deque)

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
            response = self._line_named(line).ask(request, used)
        except (ConnectionError, TimeoutError) as failed:
            self._close(line)
            self._note(step, request, used, SILENCE if isinstance(failed, TimeoutError) else CLOSED)
            return None
        self._note(step, request, used, plain(only(response), used, self.names))
        return response

    def quietly(self, request: Message, version: int | None = None, *, line: str = "") -> Any:
        """Send a request whose answer is not compared."""
        return self._line_named(line).ask(request, self._version(request, version))

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
        used = self._version(request, version)
        self._line_named(line).ask_later(request, used)
        self._later[line].append((request, used))

    def note(self, step: str, request: Message, response: Any) -> None:
        """Note an answer in the newest version that a script got quietly."""
        version = self._version(request, None)
        self._note(step, request, version, plain(response, version, self.names))

    def unanswered(self, request: Message, version: int | None = None) -> None:
        """Send a request that is not answered when all goes well."""
        self._line.ask_later(request, self._version(request, version))
        self._line.expect_no_response()

    def answered(self, step: str, *, line: str = "", only: Callable[[Any], Any] = lambda reply: reply) -> Any:
        """Note the answer to what was sent first on this line."""
        request, version = self._later[line].popleft()
        response = self._line_named(line).response()
        self._note(step, request, version, plain(only(response), version, self.names))
        return response

    def ask_raw(self, step: str, frame: bytes, *, head: int | None = None) -> None:
        """Send a frame made by hand on a connection of its own; note the answer's first bytes, or the end of it."""
        with self._connected() as line:
            line.send(framed(frame))
            try:
                response = line.receive()[:head].hex()
            except ConnectionError:
                response = CLOSED
        self.steps.append({"step": step, "api": "raw", "version": 0, "answer": response})

    def close(self) -> None:
        self._line.close()
        for line in self._others.values():
            line.close()

    def _connected(self, line: str = "") -> BlockingWire:
        return BlockingWire(self.address, timeout_s=ANSWER_SECONDS_MAX, client_id=self.script + line)

    def _version(self, request: Message, version: int | None) -> int:
        api = api_of(request)
        if api.key not in self.offered:
            raise NotServedError(api.name)
        return api.latest_stable if version is None else version

    def _note(self, step: str, request: Message, version: int, response: Any) -> None:
        name = api_of(request).name
        self.steps.append({"step": step, "api": name, "version": version, "answer": response})

    def _line_named(self, name: str) -> BlockingWire:
        if not name:
            return self._line
        if name not in self._others:
            self._others[name] = self._connected(name)
        return self._others[name]

    def _close(self, name: str) -> None:
        """Begin a new connection in place of the connection that the broker closed."""
        self._line_named(name).close()
        self._later[name].clear()
        if name:
            del self._others[name]
        else:
            self._line = self._connected()
