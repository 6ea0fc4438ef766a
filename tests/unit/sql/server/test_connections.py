"""Half requests keep no one out: of people without a password, of one client, of many."""

from __future__ import annotations

import errno
import os
import select
import socket
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sql.sql_service import ScriptedService, served

from odradek.archive.store.location import archive_location
from odradek.model.errors import ConfigError
from odradek.sql.server.archives import check_endpoint
from odradek.sql.server.connections import ListeningSocket, SqlConnections
from odradek.sql.server.gate import GateLimits, HttpUsers, Shares
from odradek.values.errors import SqlError

HEAD = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"
HALVES = {
    "nothing": b"",
    "a half head": b"POST /ksql HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
    "a half statement": HEAD % b"/ksql",
    "a half query": HEAD % b"/query-stream",
    "a half insert": HEAD % b"/inserts-stream",
    "a half question": HEAD.replace(b"POST", b"GET") % b"/info",
}


def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 0), 30)


def _status(url: str, path: bytes = b"/info") -> int:
    with _connected(url) as client:
        client.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % path)
        return int(client.makefile("rb").readline().split()[1])


@contextmanager
def _halves(url: str, half: bytes, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(_connected(url)) for _ in range(count)]
        for client in clients:
            client.sendall(half)
        yield clients


@pytest.mark.parametrize("kind", HALVES)
def test_half_requests_take_no_place(kind: str) -> None:
    limits = GateLimits(requests_max=2)
    with served(ScriptedService(), limits=limits) as url, _halves(url, HALVES[kind], 10):
        assert _status(url) == 200
        with _connected(url) as client:
            body = b'{"ksql": "SHOW STREAMS;"}'
            client.sendall(
                b"POST /ksql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            assert client.makefile("rb").readline().split()[1] == b"200"


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("of_one_address", [True, False])
def test_the_oldest_half_request_gives_way(kind: str, of_one_address: bool) -> None:
    connections = SqlConnections(4, 100) if not of_one_address else SqlConnections(100, 4)
    with served(ScriptedService(), connections=connections) as url, _halves(url, HALVES[kind], 12) as clients:
        assert _status(url) == 200
        clients[0].settimeout(30)
        assert clients[0].recv(1) == b""


@pytest.mark.parametrize("path", [b"/ksql", b"/query-stream", b"/inserts-stream"])
def test_a_stranger_is_refused_before_the_body_is_read(path: bytes) -> None:
    with served(ScriptedService(), HttpUsers({"ann": "secret"})) as url, _connected(url) as client:
        client.sendall(HEAD % path)
        answered = client.makefile("rb").read()  # up to the end: the server closes
        assert answered.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", [b"/ksql", b"/query-stream", b"/inserts-stream"])
def test_a_body_has_a_deadline(path: bytes) -> None:
    with served(ScriptedService(), limits=GateLimits(body_s=0.05)) as url, _connected(url) as client:
        client.sendall(HEAD % path)
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 408 ")


def test_all_bodies_together_have_a_bound() -> None:
    limits = GateLimits(bodies_bytes_max=1_000, body_s=30)
    with served(ScriptedService(), limits=limits) as url, _halves(url, HEAD % b"/ksql" + b" " * 900, 1):
        with _connected(url) as client:
            client.sendall(HEAD % b"/ksql" + b" " * 900)
            with _connected(url) as third:
                third.sendall(HEAD % b"/ksql" + b" " * 900)
                assert third.makefile("rb").read().startswith(b"HTTP/1.1 429 ")
        assert _status(url) == 200


PUSH = b'{"sql": "SELECT * FROM numbers EMIT CHANGES;"}'


def _post(client: socket.socket, path: bytes, body: bytes, user: str | None = None) -> int:
    """The status of the answer, whose rest is left unread."""
    login = "" if user is None else f"Authorization: Basic {b64encode(f'{user}:pw'.encode()).decode()}\r\n"
    head = f"POST {path.decode()} HTTP/1.1\r\nHost: 127.0.0.1\r\n{login}Content-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return int(client.makefile("rb").readline().split()[1])


@pytest.mark.parametrize("has_users", [True, False])
def test_long_queries_of_one_client_leave_places_for_others(has_users: bool) -> None:
    """Complete requests, which are answered without end."""
    users = HttpUsers({"ann": "pw", "bob": "pw", "cid": "pw"}) if has_users else None
    limits = GateLimits(requests_max=16)
    with served(ScriptedService(), users, limits) as url, ExitStack() as stack:

        def begin(user: str, address: str) -> int:
            parts = urlsplit(url)
            assert parts.hostname is not None
            place = (parts.hostname, parts.port or 0)
            client = stack.enter_context(socket.create_connection(place, 30, (address, 0)))
            return _post(client, b"/query-stream", PUSH, user if has_users else None)

        # With users, the user counts and not the address.
        ann = [
            begin("ann", f"127.0.0.{number % 3 + 2}" if has_users else "127.0.0.2") for number in range(20)
        ]
        bob = [begin("bob", "127.0.0.2" if has_users else "127.0.0.3") for _ in range(20)]
        cid = [begin("cid", "127.0.0.2" if has_users else "127.0.0.4") for _ in range(20)]
        assert (ann.count(200), bob.count(200), cid.count(200)) == (8, 4, 2)
        assert set(ann + bob + cid) == {200, 429}
        assert begin("ann", "127.0.0.2") == 429


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=200))
def test_a_client_without_a_place_finds_one_whatever_others_did(steps: list[tuple[str, bool]]) -> None:
    shares, held = Shares(20), Counter[str]()
    for client, takes in steps:
        if takes:
            held[client] += shares.acquire(client)
        elif held[client]:
            held[client] -= 1
            shares.release(client)
        assert held.total() < 20
    assert shares.acquire("new")
    assert not shares.acquire("new", 20)


def test_bodies_of_one_client_leave_room_for_others() -> None:
    limits = GateLimits(bodies_bytes_max=4_000, body_s=30)
    users = HttpUsers({"ann": "pw", "bob": "pw"})
    with served(ScriptedService(), users, limits) as url, ExitStack() as stack:

        def half(user: str) -> socket.socket:
            login = b64encode(f"{user}:pw".encode())
            client = stack.enter_context(_connected(url))
            client.sendall(
                HEAD.replace(b"Host", b"Authorization: Basic %s\r\nHost" % login) % b"/ksql" + b" " * 900
            )
            return client

        ann = [half("ann") for _ in range(3)]
        refused = [
            client for client in ann if select.select([client], [], [], 30 if client is ann[-1] else 0)[0]
        ]
        assert refused
        assert refused[0].makefile("rb").readline().split()[1] == b"429"
        with _connected(url) as client:
            assert _post(client, b"/ksql", b'{"ksql": "SHOW STREAMS;"}', "bob") == 200


def test_a_request_that_is_answered_does_not_give_way() -> None:
    connections = SqlConnections(1)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(8)
        address = bound.getsockname()
        listening = ListeningSocket(bound, connections)
    with listening, socket.create_connection(address) as _, socket.create_connection(address) as second:
        listening.setblocking(True)
        first, peer = listening.accept()
        connections.begin(peer[:2])
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
        assert second.recv(1) == b""
        connections.end(peer[:2])
        with socket.create_connection(address):
            listening.setblocking(True)
            third, _ = listening.accept()
            assert first.recv(1) == b""
            first.close()
            third.close()


def test_a_server_without_descriptors_refuses_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(8)
        address = bound.getsockname()
        listening = ListeningSocket(bound, SqlConnections())
    failures = iter([OSError(errno.EMFILE, os.strerror(errno.EMFILE))])
    accept = socket.socket.accept

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        for failure in failures:
            raise failure
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    with listening, socket.create_connection(address) as refused, socket.create_connection(address):
        listening.setblocking(True)
        taken, _ = listening.accept()
        assert refused.recv(1) == b""
        taken.close()


@pytest.mark.parametrize(
    ("endpoint", "is_allowed"),
    [
        ("https://s3.eu-central-1.amazonaws.com", True),
        ("https://s3.amazonaws.com", True),
        ("https://minio.example:9000", True),
        ("https://minio.example:9000/", True),
        ("http://s3.amazonaws.com", False),
        ("https://evil.example", False),
        ("https://s3.amazonaws.com.evil.example", False),
        ("https://s3.amazonaws.com@evil.example", False),
        ("https://abc.execute-api.eu-central-1.amazonaws.com", False),
        ("http://169.254.169.254", False),
    ],
)
def test_statements_name_stores_that_the_operator_allows(
    endpoint: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://own.example")
    check_endpoint(archive_location("s3://lake/a"), frozenset())
    place = archive_location("s3://lake/a", endpoint=endpoint)
    allowed = frozenset({"https://minio.example:9000"})
    if is_allowed:
        check_endpoint(place, allowed)
        return
    with pytest.raises(SqlError, match=r"does not connect.*odradek\.sql\.archive\.endpoints"):
        check_endpoint(place, allowed)


@pytest.mark.parametrize("region", ["evil.example/", "a@b", "x#", ""])
def test_a_region_is_no_part_of_another_host(region: str) -> None:
    if not region:
        assert archive_location("s3://lake/a", region=region, environment={}).region is None
        return
    with pytest.raises(ConfigError, match="region"):
        archive_location("s3://lake/a", region=region)
