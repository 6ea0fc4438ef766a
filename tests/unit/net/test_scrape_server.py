"""The HTTP server of metrics: what it serves, and that peers which misbehave cost it nothing lasting."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from odradek.net.scrape_server import HttpPage, PageRequest, ScrapeLimits, ScrapeServer
from odradek.net.server import ListenError

SECONDS = 20
LARGE = HttpPage(body=b"x" * 8_000_000)


class RunningServer:
    """A running server; pages: / is small, /large is large, /broken raises."""

    def __init__(self, **limits: float) -> None:
        self.seen: list[PageRequest] = []
        self.server = ScrapeServer(self._answer, ScrapeLimits(**limits))  # type: ignore[arg-type]
        self.port = self.server.open("", 0)
        self.server.start()

    async def _answer(self, request: PageRequest) -> HttpPage:
        self.seen.append(request)
        if request.path == "/broken":
            raise ValueError("secret of the program")
        return LARGE if request.path == "/large" else HttpPage(body=b"hello\n")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def ask(self, raw: bytes) -> bytes:
        with self.connect() as peer:
            try:
                peer.sendall(raw)
            except ConnectionError:
                return b""
            return everything(peer)


def everything(peer: socket.socket) -> bytes:
    """What comes until the server closes."""
    parts = []
    try:
        while part := peer.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass  # what came before it counts
    return b"".join(parts)


@pytest.fixture
def serve() -> Iterator[Callable[..., RunningServer]]:
    running: list[RunningServer] = []

    def start(**limits: float) -> RunningServer:
        running.append(RunningServer(**limits))
        return running[-1]

    yield start
    for served in running:
        served.server.close()
        served.server.close()  # twice does no harm


def test_a_page_is_served_and_the_connection_closed(serve: Callable[..., RunningServer]) -> None:
    served = serve()
    reply = served.ask(b"GET /page?query HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\r\n")
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 6" in head
    assert b"Connection: close" in head
    assert body == b"hello\n"
    assert served.seen == [
        PageRequest(path="/page", headers={"host": "h", "accept": "text/plain"}, peer="127.0.0.1")
    ]


def test_a_head_has_no_body_and_a_large_page_comes_whole(serve: Callable[..., RunningServer]) -> None:
    served = serve()
    assert served.ask(b"HEAD / HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert served.ask(b"GET /large HTTP/1.0\r\n\r\n").endswith(LARGE.body)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://h/ HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\nB: c\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_what_is_not_a_plain_request_is_refused(
    serve: Callable[..., RunningServer], raw: bytes, status: int
) -> None:
    served = serve()
    reply = served.ask(raw)
    # A reset may overtake the reply where the peer sent more than was read.
    assert reply.startswith(b"HTTP/1.1 %d " % status) or (status in (413, 431) and reply == b"")
    assert b"secret" not in reply
    assert served.ask(b"GET / HTTP/1.1\r\n\r\n").endswith(b"hello\n"), "others are served"


def test_a_peer_that_sends_half_a_request_is_sent_away(serve: Callable[..., RunningServer]) -> None:
    served = serve(head_s=0.05)
    assert served.ask(b"GET / HT").startswith(b"HTTP/1.1 408 ")


def test_a_peer_that_reads_nothing_loses_its_connection(serve: Callable[..., RunningServer]) -> None:
    served = serve(answer_s=0.05, connections_max=1)
    with served.connect() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        while not (reply := served.ask(b"GET / HTTP/1.1\r\n\r\n")):
            continue  # the only place is taken until the time is over
        assert reply.endswith(b"hello\n")


def test_answers_that_are_not_read_have_a_bound(serve: Callable[..., RunningServer]) -> None:
    served = serve(unread_bytes_max=len(LARGE.body))
    with served.connect() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        idle.recv(1)
        assert served.ask(b"GET /large HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 ")


def test_a_thousand_connections_are_closed_but_for_the_first(serve: Callable[..., RunningServer]) -> None:
    served = serve(connections_max=3, head_s=600)
    kept = [served.connect() for _ in range(3)]
    try:
        for peer in kept:
            peer.sendall(b"GET / ")
        assert all(served.ask(b"GET / HTTP/1.1\r\n\r\n") == b"" for _ in range(1000))
        assert served.server.refused_count >= 1000
        for peer in kept:
            peer.sendall(b"HTTP/1.1\r\n\r\n")
            assert everything(peer).endswith(b"hello\n")
    finally:
        for peer in kept:
            peer.close()


def test_it_closes_while_peers_wait(serve: Callable[..., RunningServer]) -> None:
    before = set(threading.enumerate())
    served = serve()
    with served.connect() as peer:
        peer.sendall(b"GET /")
        served.ask(b"GET / HTTP/1.1\r\n\r\n")
        served.server.close()
        assert everything(peer) == b""
    begun = set(threading.enumerate()) - before
    assert not [thread for thread in begun if thread.name == "odradek-metrics"]


def test_an_address_that_is_taken_is_named(serve: Callable[..., RunningServer]) -> None:
    served = serve()
    other = ScrapeServer(served._answer)
    with pytest.raises(
        ListenError, match=rf"metrics\.listeners: cannot listen on 127\.0\.0\.1:{served.port}"
    ):
        other.open("127.0.0.1", served.port)
