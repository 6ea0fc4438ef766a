"""A session of Spark's Thrift server, byte by byte: beeline and JDBC drivers do not send what is sent here."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import urlsplit

BOOL, I32, I64, TEXT, STRUCT, MAP = 2, 8, 10, 11, 12, 13
_CALL: Final = 0x80010001
_HANDLE: Final = re.compile(rb"\x0b\x00\x01\x00{3}\x10(.{16})\x0b\x00\x02\x00{3}\x10(.{16})", re.DOTALL)
_START, _COMPLETE = 1, 2
"""Of an exchange of SASL."""


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(content)) + content


def fields(*values: tuple[int, int, bytes]) -> bytes:
    """A struct: type, id and content of each field."""
    return b"".join(struct.pack(">bh", kind, number) + content for kind, number, content in values) + b"\0"


class ThriftSession:
    """`settings`: of the session, as they are, without what drivers make of them."""

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        address = urlsplit(url.removeprefix("jdbc:"))
        self._socket = socket.create_connection((address.hostname, address.port), 60)
        for status, body in ((_START, b"PLAIN"), (_COMPLETE, b"\0ann\0ann")):
            self._socket.sendall(struct.pack(">B", status) + text(body))
        self._received(struct.unpack(">BI", self._received(5))[1])
        self._settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def rows(self, statement: str) -> bytes:
        """The server's answers to the statement and to the request for its rows; or that it opens no session."""
        pairs = b"".join(text(name) + text(value) for name, value in self._settings.items())
        opened = self._call(
            "OpenSession",
            (I32, 1, struct.pack(">i", 9)),
            (TEXT, 2, text("ann")),
            (MAP, 4, struct.pack(">bbI", TEXT, TEXT, len(self._settings)) + pairs),
        )
        if _HANDLE.search(opened) is None:
            return opened
        session = fields((STRUCT, 1, _handle(opened)))
        ran = self._call("ExecuteStatement", (STRUCT, 1, session), (TEXT, 2, text(statement)))
        if _HANDLE.search(ran) is None:
            return ran
        operation = fields((STRUCT, 1, _handle(ran)), (I32, 2, struct.pack(">i", 0)), (BOOL, 3, b"\1"))
        amount = struct.pack(">q", 100)
        return ran + self._call(
            "FetchResults", (STRUCT, 1, operation), (I32, 2, struct.pack(">i", 0)), (I64, 3, amount)
        )

    def _call(self, name: str, *arguments: tuple[int, int, bytes]) -> bytes:
        request = fields((STRUCT, 1, fields(*arguments)))
        self._socket.sendall(text(struct.pack(">I", _CALL) + text(name) + struct.pack(">I", 1) + request))
        return self._received(struct.unpack(">I", self._received(4))[0])

    def _received(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            part = self._socket.recv(size - len(content))
            assert part, "the server hung up"
            content += part
        return content


def _handle(content: bytes) -> bytes:
    handle = _HANDLE.search(content)
    assert handle is not None, content
    return fields((TEXT, 1, text(handle[1])), (TEXT, 2, text(handle[2])))
