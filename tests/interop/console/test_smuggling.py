"""Requests that hide another one: whatever a proxy reads out of them, the console answers one of them, or none."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.interop
PATIENCE_S = 30.0
SILENCE_S = 1.0
HIDDEN = b"GET /topics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")


def statuses(address: str, request: bytes) -> list[int]:
    """Returns the status of every response on one connection, until the console closes it or says nothing more."""
    where = urlsplit(address)
    assert where.hostname is not None
    content = b""
    with socket.create_connection((where.hostname, where.port or 80), timeout=PATIENCE_S) as peer:
        peer.sendall(request)
        content = peer.recv(65_536)
        peer.settimeout(SILENCE_S)
        try:
            while piece := peer.recv(65_536):
                content += piece
        except (TimeoutError, ConnectionResetError):
            pass  # it keeps the connection for a further request, or has dropped the rest of this one
    return [int(status) for status in _STATUS.findall(content)]


def post(*headers: bytes, body: bytes = HIDDEN) -> bytes:
    lines = [b"POST /preferences HTTP/1.1", b"Host: 127.0.0.1", b"Sec-Fetch-Site: same-origin", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("request_bytes", "allowed"),
    [
        (post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN), {400, 411}),
        (post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n" + HIDDEN), {400, 411}),
        (post(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN), {411}),
        (post(b"Transfer-Encoding: identity, chunked", body=b"0\r\n\r\n" + HIDDEN), {400, 411, 501}),
        (post(b"Transfer-Encoding : chunked", b"Content-Length: 4"), {400}),
        (post(b"Transfer-Encoding:\x0bchunked", b"Content-Length: 4"), {400, 411, 501}),
        (post(b"Content-Length: 0", b"Content-Length: %d" % len(HIDDEN)), {400}),
        (post(b"Content-Length: +0"), {400}),
        (post(b"Content-Length: 0x0"), {400}),
        (post(b"Content-Length: -1"), {400}),
        (post(b"Host: evil.example", b"Content-Length: 0"), {400}),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n", {400}),
        (b"GET /topics\r\nHost: 127.0.0.1\r\n\r\n", {400}),
    ],
)
def test_a_request_of_two_lengths_is_refused_and_hides_none(
    console: str, request_bytes: bytes, allowed: set[int]
) -> None:
    [status] = statuses(console, request_bytes)
    assert status in allowed


def test_the_body_of_a_request_is_no_request(console: str) -> None:
    """A form without its token is refused; what its body says is not asked."""
    whole = statuses(console, post(b"Content-Length: %d" % len(HIDDEN)))
    assert whole == [403]
    get = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    assert len(statuses(console, get + HIDDEN)) == 1


def test_requests_behind_one_another_are_answered_in_order(console: str) -> None:
    request = b"GET /static/icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    assert statuses(console, request + request.replace(b"icon.svg", b"absent")) == [200, 404]
