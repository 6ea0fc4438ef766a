"""Whole connections that are fuzzed: bytes go in as a peer sends them, through framing, logins and decoders to what serves.

The data is a list of frames with `SEPARATOR` between them. A frame gets its size, unless it begins with `RAW`. In the place of
the dispatcher the request is read, and answered with an empty frame.
"""

from __future__ import annotations

import asyncio
import atexit
import struct
from typing import Any, Final

from odradek.broker.security.login import LoginGate, LoginTerms
from odradek.model.errors import KafkaError
from odradek.net.connection import Connection
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.replies import Chunks, PeerError, Reply
from odradek.net.server import Server
from odradek.protocol import APIS, decode, decode_request_header
from odradek.protocol.api import API_VERSIONS_KEY
from odradek.runtime.real import real_runtime
from odradek.security.sasl.exchange import ServerExchange
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.session import LoginSession, LoginState

SEPARATOR: Final = b"\r\n"
RAW: Final = b"\xff\xff"
USER: Final = "alice"
PASSWORD: Final = "correct horse battery staple"
_LOGGED_IN: Final = [
    struct.pack(">hhih", 17, 1, 1, -1) + b"\0\5PLAIN",
    struct.pack(">hhih", 36, 0, 2, -1) + struct.pack(">i", len(USER + PASSWORD) + 2)
    + f"\0{USER}\0{PASSWORD}".encode(),
]  # fmt: skip
"""A handshake and a token."""
_FIRST_FRAME_BYTES_MAX: Final = 2048
_FRAME_BYTES_MAX: Final = 8192
_ELEMENTS_MAX: Final = 1000
_FRAMES_MAX: Final = 16
_TURNS_MAX: Final = 8
_EMPTY_FRAME: Final[Chunks] = [b"\0\0\0\0"]
_loop = asyncio.new_event_loop()
atexit.register(_loop.close)


def frames_before_login(data: bytes, scram: ServerExchange) -> None:
    """No one who does not know a password gets past the login, and no request is served before it."""
    fuzzed = _loop.run_until_complete(_converse(data.split(SEPARATOR)[:_FRAMES_MAX], scram))
    assert not fuzzed.was_open or PASSWORD.encode() in data, "logged in without a password"


def frames_after_login(data: bytes, scram: ServerExchange) -> None:
    """Whatever is sent after a login, the connection stays the user's that logged in."""
    frames = [*_LOGGED_IN, *data.split(SEPARATOR)[:_FRAMES_MAX]]
    fuzzed = _loop.run_until_complete(_converse(frames, scram))
    assert fuzzed.was_open, "the password is right"


async def _converse(frames: list[bytes], scram: ServerExchange) -> FuzzedConnection:
    fuzzed = FuzzedConnection(scram)
    try:
        for frame in frames:
            await fuzzed.send(frame[len(RAW) :] if frame.startswith(RAW) else _sized(frame))
    finally:
        await fuzzed.leave()
    if fuzzed.error is not None:
        raise AssertionError(fuzzed.error)
    return fuzzed


def _sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class FuzzedConnection:
    """One connection to a server that listens nowhere. `error`: what the code under test did wrong."""

    def __init__(self, scram: ServerExchange) -> None:
        self.error: str | None = None
        self.was_open = False
        self._clock = real_runtime().clock
        self._session = LoginSession(
            {"PLAIN": lambda: PlainServer({USER: PASSWORD}), "SCRAM-SHA-256": lambda: scram}, {}
        )
        listener = OpenListener(
            name="SASL", login=self._log_in, first_frames_bytes_max=_FIRST_FRAME_BYTES_MAX
        )
        self._server = Server(self, ServerLimits(frame_bytes_max=_FRAME_BYTES_MAX), now=self._clock.monotonic)
        self._transport = DeafTransport()
        self._connection = Connection(self._server, self, listener)
        self._connection.connection_made(self._transport)

    def note_state(self) -> None:
        """Notes the connection's state after each frame."""
        self.was_open = self.was_open or self._session.state is LoginState.OPEN

    async def send(self, content: bytes) -> None:
        """Hands over as much of the content as the connection wants to read."""
        connection, view = self._connection, memoryview(content)
        for _ in range(_TURNS_MAX):
            while view and self._transport.is_reading() and not self._transport.is_closing():
                buffer = connection.get_buffer(-1)
                count = min(len(buffer), len(view))
                buffer[:count] = view[:count]
                view = view[count:]
                connection.buffer_updated(count)
            await asyncio.sleep(0)  # answers that come later
            if not view:
                return

    async def leave(self) -> None:
        self._connection.connection_lost(None)
        await self._server.stop(drain_seconds=0)  # its timers hold what it knows
        await asyncio.sleep(0)  # what waited is cancelled

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        raise AssertionError("the login stands before this")

    def _log_in(self, connection: Connection) -> Any:
        terms = LoginTerms(failure_delay_s=0.0, login_s=30.0)
        gate = LoginGate(connection, self._serve, self._session, terms, self._clock)
        return _Watched(self, gate)

    def _serve(self, connection: Connection, frame: memoryview) -> Reply:
        header, position = decode_request_header(frame)
        if self._session.state is LoginState.OPEN:
            if connection.requester.principal != f"User:{USER}":
                self.error = f"{connection.requester.principal} is served"
        elif header.api_key != API_VERSIONS_KEY:
            self.error = f"API {header.api_key} is served in state {self._session.state.value}"
        api = APIS.get(header.api_key)
        if api is None or header.api_version not in api.versions:
            if header.api_key != API_VERSIONS_KEY:
                raise PeerError("not an API")
        else:
            decode(api.request, header.api_version, frame, position, _ELEMENTS_MAX)
        return _EMPTY_FRAME


class _Watched:
    """The root of a connection survives every exception: here an unexpected one is what is looked for."""

    def __init__(self, fuzzed: FuzzedConnection, gate: LoginGate) -> None:
        self._fuzzed = fuzzed
        self._gate = gate

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        try:
            return self._gate.handle(connection, frame)
        except (PeerError, KafkaError):
            raise
        except Exception as error:
            self._fuzzed.error = f"{error!r} for {bytes(frame)!r}"
            raise
        finally:
            self._fuzzed.note_state()


class DeafTransport(asyncio.Transport):
    """Takes every byte and sends none."""

    def __init__(self) -> None:
        super().__init__()
        self._is_reading = True
        self._is_closing = False

    def write(self, data: Any) -> None:
        """Dropped."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True
