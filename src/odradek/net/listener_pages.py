"""Asks the metrics listeners of brokers for their pages: HTTP/1.0, with bounds on bytes and on time.

One request for each connection, as `scrape_server.py` serves them. A listener that sends slowly, without end,
or something else than HTTP costs its caller at most these bounds.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.config.listening.listeners import format_address, parse_host_port
from odradek.model.errors import OdradekError
from odradek.model.safe_text import safe_line

PAGE_S: Final = 30.0
"""The time limit for a whole page, from the connection on."""
PAGE_BYTES_MAX: Final = 512 << 20
"""The longest page that is read in pieces: half a million series with long labels."""
SMALL_PAGE_BYTES_MAX: Final = 16 << 20
"""The longest page that is read as a whole."""
_HEAD_BYTES_MAX: Final = 64 << 10
_PIECE_BYTES: Final = 64 << 10
_REASON_BYTES: Final = 200
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")
_OK: Final = 200


class ListenerPageError(OdradekError):
    """The metrics listener of a broker did not answer as it should."""


class ListenerAddress(NamedTuple):
    """The address of a metrics listener; `str` writes it as HOST:PORT."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)

    @classmethod
    def of(cls, text: str) -> ListenerAddress:
        """Parses HOST:PORT; without HOST it is the loopback interface. Raises ConfigError."""
        host, port = parse_host_port(text)
        return cls(host or "127.0.0.1", port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAccess:
    """How listeners are reached that ask for a token or speak TLS. Files are read for each page: they may be renewed."""

    token_file: str | None = field(default=None, repr=False)
    """A file whose first line is the token."""
    ca: str | None = None
    """The authorities to trust, as PEM; None: plain HTTP."""

    def headers(self) -> str:
        """Returns the header that shows the token. Raises ListenerPageError for a file without one."""
        if self.token_file is None:
            return ""
        try:
            with open(self.token_file, encoding="ascii") as file:
                token = file.readline().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ListenerPageError(f"the token file {self.token_file} cannot be read: {error}") from None
        if not token:
            raise ListenerPageError(f"the token file {self.token_file} has no token in its first line")
        if not token.isprintable():
            raise ListenerPageError(f"the token in {self.token_file} has a character that no header may have")
        return f"Authorization: Bearer {token}\r\n"

    def context(self) -> ssl.SSLContext | None:
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ListenerPageError(f"the authorities in {self.ca} cannot be read: {error}") from None


async def read_page(
    address: ListenerAddress,
    path: str,
    access: ListenerAccess,
    feed: Callable[[bytes], None],
    *,
    bytes_max: int = PAGE_BYTES_MAX,
    timeout_s: float = PAGE_S,
) -> None:
    """Passes the pieces of a page to `feed`. Raises ListenerPageError if no whole page comes, and what `feed` raises."""
    headers = await asyncio.to_thread(access.headers)
    context = await asyncio.to_thread(access.context)
    request = f"GET {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n".encode("ascii")
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, limit=_HEAD_BYTES_MAX
            )
            try:
                writer.write(request)
                await _receive(address, reader, feed, bytes_max)
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise ListenerPageError(
            f"the metrics listener at {address} sent no whole page within {timeout_s:g} s"
        ) from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ListenerPageError(
            f"no metrics listener answers at {address} ({safe_line(str(error))[:_REASON_BYTES]}): start the broker with "
            f"--set metrics.listeners={address}, or give --metrics HOST:PORT"
        ) from None


async def page(
    address: ListenerAddress,
    path: str,
    access: ListenerAccess,
    *,
    bytes_max: int = SMALL_PAGE_BYTES_MAX,
    timeout_s: float = PAGE_S,
) -> bytes:
    """Returns a whole page. Raises ListenerPageError."""
    content = bytearray()
    await read_page(address, path, access, content.extend, bytes_max=bytes_max, timeout_s=timeout_s)
    return bytes(content)


async def _receive(
    address: ListenerAddress, reader: asyncio.StreamReader, feed: Callable[[bytes], None], bytes_max: int
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    status = _STATUS.match(head)
    if status is None:
        raise ListenerPageError(f"{address} is no metrics listener: it does not speak HTTP")
    if int(status[1]) != _OK:
        reason = safe_line((await reader.read(_REASON_BYTES)).decode(errors="replace").strip())
        raise ListenerPageError(f"the metrics listener at {address} answers {int(status[1])}: {reason}")
    length = _length_of(head)
    if length is not None and length > bytes_max:
        raise ListenerPageError(f"the page of {address} has {length} bytes, more than {bytes_max}")
    received = 0
    while length is None or received < length:
        piece = await reader.read(_PIECE_BYTES if length is None else min(_PIECE_BYTES, length - received))
        if not piece:
            break
        received += len(piece)
        if received > bytes_max:
            raise ListenerPageError(f"the page of {address} has more than {bytes_max} bytes")
        feed(piece)
    if length is not None and received < length:
        raise ListenerPageError(f"the page of {address} ended after {received} of {length} bytes")


def _length_of(head: bytes) -> int | None:
    """Returns the Content-Length; None where there is none that is a number: the page then ends with the connection."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        text = value.strip()
        if name.lower() == b"content-length" and re.fullmatch(rb"[0-9]{1,18}", text):
            return int(text)
    return None
