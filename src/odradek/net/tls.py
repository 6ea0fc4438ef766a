"""TLS between a transport and a protocol: what asyncio's own does, with bounds and in words.

`TlsLayer` is the protocol of the plain transport; the protocol inside it gets a `TlsTransport`. It is a layer of its own
because asyncio's encrypts whatever it is given at once, whether or not the peer reads, and counts it nowhere: one answer of
50 MB holds the loop, and is out of sight of the budget for unread answers. Here bytes are encrypted as far as the plain
transport takes them, in pieces, with turns in between; what waits is counted; and it runs over any transport, the simulator's
and uvloop's included.

The handshake has a deadline. Bytes that are no TLS are noticed before anything is made of them.
Renegotiation, compression and early data are off (`security/tls/contexts.py`). A peer that ends the stream
without TLS's close_notify is treated like one that sent it: frames have lengths, so a truncated frame is
never taken for a whole one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol, cast

from odradek.runtime.ports import Buffer

INCOMING_BYTES: Final = 128 * 1024
_PIECE_BYTES: Final = 64 * 1024
_TURN_BYTES: Final = 2 * 1024 * 1024
"""How many bytes are encrypted before other tasks get the event loop."""
_FULL_BYTES: Final = 256 * 1024
_HANDSHAKE: Final = 0x16
_ALERT: Final = bytes((0x15, 3, 3, 0, 2, 2, 10))
"""Fatal, unexpected message: a TLS server's answer to a peer that does not speak TLS, from which that peer learns it."""
HUNG_UP: Final = "ODRADEK_HUNG_UP"
"""The code of a handshake that no one refused: the peer left or stopped sending."""
_AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError)


class TlsFailure(Exception):
    """The error of a connection whose TLS handshake failed; the message has the reason.

    `code`: OpenSSL's name of the problem, "" where it named none. `verify_code`: OpenSSL's number of what is wrong with the
    peer's certificate."""

    def __init__(self, message: str, *, code: str = "", verify_code: int | None = None) -> None:
        super().__init__(message)
        self.code: Final = code
        self.verify_code: Final = verify_code

    @classmethod
    def of(cls, error: ssl.SSLError) -> TlsFailure:
        code = error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError):
            return cls(error.verify_message or code, code=code, verify_code=error.verify_code)
        return cls(code.replace("_", " ").lower() or str(error), code=code)


class InnerProtocol(Protocol):
    """The methods that a protocol inside TLS needs, from `asyncio.BufferedProtocol`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class TlsLayer(asyncio.BufferedProtocol):
    """TLS between a plain transport and a protocol. Used on the event loop only.

    `on_end` is called once with the outcome of the handshake: None, or why there is no TLS. On a server it is called also
    when a client leaves before its first byte. `accepted` receives the plain transport before the handshake, and returns
    whether to begin it. `connection_lost` reaches the inner protocol in every case, `connection_made` only after the
    handshake."""

    def __init__(
        self,
        inner: InnerProtocol,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        is_server: bool,
        handshake_s: float,
        on_end: Callable[[TlsFailure | None], None],
        accepted: Callable[[asyncio.Transport], bool] = lambda transport: True,
        incoming: memoryview | None = None,
    ) -> None:
        """`incoming`: a buffer that layers of one loop may share, for it is empty between two calls."""
        self._inner = inner
        self._context = context
        self._is_server = is_server
        self._handshake_s = handshake_s
        self._on_end = on_end
        self._accepted = accepted
        self._buffer = memoryview(bytearray(INCOMING_BYTES)) if incoming is None else incoming
        self._from_peer = ssl.MemoryBIO()
        self._to_peer = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._from_peer, self._to_peer, server_side=is_server, server_hostname=server_hostname
        )
        self._plain: asyncio.Transport | None = None
        self._outer: TlsTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_first_read = True
        self._is_open = False
        """The handshake is done."""
        self._has_ended = False
        self._plain_is_full = False
        self._inner_reads = True
        self._eof = False
        self._eof_reported = False
        self._reading_later = False
        self._ending = False
        self._writing_later = False
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._inner_waits = False
        self._broken_by = ""

    # -- the plain transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = self._plain = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        if not self._accepted(plain):
            self._has_ended = True
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._handshake_s, self._overdue)
        if not self._is_server:
            self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._plain is None or (self._has_ended and not self._is_open):
            return
        if self._is_first_read:
            self._is_first_read = False
            if self._buffer[0] not in (_HANDSHAKE, _ALERT[0]):
                self._refuse_stranger(bytes(self._buffer[: min(nbytes, 16)]))
                return
        self._from_peer.write(self._buffer[:nbytes])
        if self._is_open:
            self._read()
        else:
            self._shake_hands()

    def eof_received(self) -> bool:
        self._eof = True
        if not self._is_open:
            if self._is_server and self._is_first_read:  # it only looked whether anything listens
                self._failed(None)
            else:
                self._failed(
                    TlsFailure("the other side closed the connection during the TLS handshake", code=HUNG_UP)
                )
            return False
        self._read()
        return self._report_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        if not self._has_ended:
            self._has_ended = True
            what = f": {exc}" if exc is not None else ""
            self._on_end(TlsFailure(f"the connection was lost during the TLS handshake{what}", code=HUNG_UP))
        self._is_open = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._plain = None
        if self._outer is not None:
            self._outer.is_gone = True
            self._outer = None
        if self._broken_by and exc is None:
            exc = TlsFailure(self._broken_by.replace("_", " ").lower(), code=self._broken_by)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._plain_is_full = True

    def resume_writing(self) -> None:
        self._plain_is_full = False
        self._pump()

    # -- the handshake

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except _AGAIN:
            self._send_encrypted()
            return
        except ssl.SSLError as error:
            self._send_encrypted()  # the alert that tells the peer
            self._failed(TlsFailure.of(error))
            return
        self._send_encrypted()
        self._stop_deadline()
        assert self._plain is not None
        self._is_open = self._has_ended = True
        self._outer = TlsTransport(self, self._plain, self._tls, self._context)
        self._on_end(None)
        self._inner.connection_made(self._outer)
        self._read()

    def _refuse_stranger(self, first_bytes: bytes) -> None:
        if self._is_server and self._plain is not None:
            self._plain.write(_ALERT)
        self._failed(TlsFailure(f"{_what_came(first_bytes)} came where TLS was expected"))

    def _overdue(self) -> None:
        self._deadline = None
        self._failed(TlsFailure(f"the TLS handshake took longer than {self._handshake_s:g} s", code=HUNG_UP))

    def _failed(self, failure: TlsFailure | None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._stop_deadline()
        self._on_end(failure)
        if self._plain is not None:
            self._plain.close()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- bytes in

    def _read(self) -> None:
        """Passes decrypted bytes to the inner protocol, as long as it takes them."""
        try:
            while self._is_open and self._inner_reads and not self._ending:
                target = self._inner.get_buffer(-1)
                count = self._decrypt(target)
                if count:
                    self._inner.buffer_updated(count)
                if count < len(target):
                    break
        except ssl.SSLError as error:
            self._broken(error)
            return
        self._send_encrypted()  # answers to key updates
        if self._eof and not self._eof_reported and self._inner_reads:
            self._close_after_eof()

    def _decrypt(self, target: memoryview) -> int:
        position = 0
        try:
            while position < len(target):
                count = int(self._tls.read(len(target) - position, target[position:]))
                if not count:
                    self._eof = True
                    break
                position += count
        except _AGAIN:
            pass
        except ssl.SSLZeroReturnError:
            self._eof = True
        except ssl.SSLEOFError:
            self._eof = True
        return position

    def _close_after_eof(self) -> None:
        if not self._report_eof() and self._outer is not None:
            self._outer.close()

    def _report_eof(self) -> bool:
        """Returns whether the inner protocol wants to continue writing."""
        if self._eof_reported:
            return True
        if not self._inner_reads:
            return True  # it hears of it when it reads again
        self._eof_reported = True
        return bool(self._inner.eof_received())

    def _broken(self, error: ssl.SSLError) -> None:
        self._broken_by = error.reason or str(error)
        if self._plain is not None:
            self._plain.abort()

    def pause_reading(self) -> None:
        self._inner_reads = False
        if self._plain is not None and not self._plain.is_closing():
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        self._inner_reads = True
        if self._plain is not None and not self._plain.is_closing():
            self._plain.resume_reading()
        if not self._reading_later:  # what was received already comes in a turn of its own, as from a socket
            self._reading_later = True
            asyncio.get_running_loop().call_soon(self._read_later)

    def _read_later(self) -> None:
        self._reading_later = False
        self._read()

    # -- bytes out

    def write(self, chunks: Iterable[Buffer]) -> None:
        for chunk in chunks:
            if len(chunk):
                self._waiting.append(memoryview(chunk).cast("B"))
                self._waiting_bytes += len(chunk)
        if not self._writing_later:
            self._pump()

    @property
    def unsent_bytes(self) -> int:
        plain_bytes = 0 if self._plain is None else self._plain.get_write_buffer_size()
        return self._waiting_bytes + self._to_peer.pending + plain_bytes

    def _pump(self) -> None:
        """Encrypts and passes on, as long as the plain transport takes it."""
        encrypted_bytes = 0
        try:
            while self._waiting and not self._plain_is_full and self._is_open:
                if encrypted_bytes >= _TURN_BYTES:
                    self._pump_later()
                    break
                encrypted_bytes += self._encrypt_piece()
                self._send_encrypted()
        except ssl.SSLError as error:
            self._broken(error)
            return
        self._push_back()
        if self._ending and not self._waiting:
            self._say_goodbye()

    def _encrypt_piece(self) -> int:
        piece = self._waiting[0]
        if len(piece) > _PIECE_BYTES:
            piece = piece[:_PIECE_BYTES]
        elif len(self._waiting) > 1 and len(piece) < _PIECE_BYTES // 4:
            piece = self._joined()
        count = self._tls.write(piece)
        self._skip(count)
        return count

    def _joined(self) -> memoryview:
        """Joins small pieces, so that they share a record."""
        pieces: list[memoryview] = []
        total_bytes = 0
        for piece in self._waiting:
            if total_bytes + len(piece) > _PIECE_BYTES:
                break
            pieces.append(piece)
            total_bytes += len(piece)
        return memoryview(b"".join(pieces))

    def _skip(self, count: int) -> None:
        waiting = self._waiting
        self._waiting_bytes -= count
        while count:
            head = waiting[0]
            if len(head) > count:
                waiting[0] = head[count:]
                return
            count -= len(head)
            waiting.popleft()

    def _pump_later(self) -> None:
        if not self._writing_later:
            self._writing_later = True
            asyncio.get_running_loop().call_soon(self._pump_in_turn)

    def _pump_in_turn(self) -> None:
        self._writing_later = False
        self._pump()

    def _send_encrypted(self) -> None:
        if self._to_peer.pending and self._plain is not None and not self._plain.is_closing():
            self._plain.write(self._to_peer.read())

    def _push_back(self) -> None:
        if self._inner_waits:
            if not self._waiting and not self._plain_is_full:
                self._inner_waits = False
                self._inner.resume_writing()
        elif self._waiting_bytes > _FULL_BYTES or (self._plain_is_full and self._waiting):
            self._inner_waits = True
            self._inner.pause_writing()

    # -- the end

    def close(self) -> None:
        """Closes once everything is sent. Does not wait for the peer's close_notify."""
        if not self._ending:
            self._ending = True
            if not self._waiting:
                self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._plain is None or self._plain.is_closing():
            return
        try:
            self._tls.unwrap()
        except ssl.SSLError:  # it wants the peer's goodbye, which is of no use
            pass
        self._send_encrypted()
        self._plain.close()

    def abort(self) -> None:
        """Closes the plain transport at once, in the middle of the handshake, too. Idempotent."""
        if self._plain is not None:
            self._plain.abort()


class TlsTransport(asyncio.Transport):
    """The transport of the protocol inside TLS."""

    def __init__(
        self, layer: TlsLayer, plain: asyncio.Transport, tls: ssl.SSLObject, context: ssl.SSLContext
    ) -> None:
        super().__init__()
        self._layer = layer
        self._plain = plain
        self._tls = tls
        self._context = context
        self.is_gone = False
        self._is_closing = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        match name:
            case "peercert":
                return self._tls.getpeercert() or default
            case "ssl_object":
                return self._tls
            case "sslcontext":
                return self._context
        return self._plain.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing or self.is_gone or self._plain.is_closing()

    def close(self) -> None:
        self._is_closing = True
        self._layer.close()

    def abort(self) -> None:
        self._is_closing = True
        self._layer.abort()

    def pause_reading(self) -> None:
        self._layer.pause_reading()

    def resume_reading(self) -> None:
        self._layer.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._layer.unsent_bytes

    def write(self, data: Buffer) -> None:
        self._layer.write((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self._layer.write(list_of_data)

    def can_write_eof(self) -> bool:
        return False


def _what_came(first_bytes: bytes) -> str:
    if first_bytes[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"HTTP"):
        return "HTTP"
    if first_bytes.startswith(b"SSH-"):
        return "an SSH greeting"
    if len(first_bytes) >= 6 and first_bytes[0] == 0 and first_bytes[4] == 0:
        return "a Kafka request without TLS"
    return "something else"
