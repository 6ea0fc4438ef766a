"""The server under test, once per session, and one fixture for each thing that tests ask of it.

`--server odradek` (the default) runs this tree's broker; `--server kafka` runs the same tests against
Apache Kafka, which is how the tests themselves are checked. The environment variable ODRADEK_INTEROP_SERVER
does the same when pytest is started on a folder above this one. `--secured` (or ODRADEK_INTEROP_SECURED=1) runs the tests
of `SECURED` against brokers that ask for TLS, a login and ACLs, and skips the others.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))

from benchmarks.odradek_node import Node, OdradekNode  # noqa: E402
from benchmarks.peer import KafkaNode, free_port  # noqa: E402
from tests.interop import wire  # noqa: E402
from tests.interop.adapters import CLIENTS, AbsentError, Client, Row  # noqa: E402
from tests.interop.logins import Lock, LockedNode  # noqa: E402
from tests.interop.proxy import Proxy  # noqa: E402
from tests.interop.server import Server, running  # noqa: E402

SECURED = ("admin", "data", "groups", "own_client", "transactions")
"""What Python clients do, and those that share a group with them."""
_numbers = itertools.count()
_QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
"""Groups rebalance as they always do, without the waiting."""
_STREAMS_GROUPS = {
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "offsets.topic.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "5",
}
"""The same for streams groups, and for a broker of a test's own."""
_OWN_SETTINGS = {"odradek": {"odradek.log.peer.lines.max": "0"}}
"""All tests share one address: what each caused is looked for in the log."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--server", choices=["odradek", "kafka"], help="which broker the interop tests drive")
    parser.addoption("--secured", action="store_true", help="with TLS, a login and ACLs")


def _is_secured(config: pytest.Config) -> bool:
    return bool(config.getoption("--secured", default=False) or os.environ.get("ODRADEK_INTEROP_SECURED"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "interop" in config.option.markexpr
    here = Path(__file__).parent
    secured = [here / folder for folder in SECURED]
    mine = f"{here}{os.sep}"
    for test in items:
        if str(test.path).startswith(mine):  # `is_relative_to` takes a second for all tests
            if _is_secured(config) and not any(test.path.is_relative_to(folder) for folder in secured):
                test.add_marker(pytest.mark.skip(reason="not one of those that also run with --secured"))
            if test.get_closest_marker("slow") and not asked:
                test.add_marker(
                    pytest.mark.skip(reason="takes long: `make interop` runs it (pytest -m interop)")
                )
            test.add_marker(pytest.mark.interop)
            # What third-party clients still call is theirs to renew.
            test.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@pytest.fixture(scope="session")
def server_kind(request: pytest.FixtureRequest) -> str:
    chosen = request.config.getoption("--server", default=None)
    return chosen or os.environ.get("ODRADEK_INTEROP_SERVER", "odradek")


@pytest.fixture(scope="session")
def lock(
    request: pytest.FixtureRequest, server_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Lock | None:
    """What brokers and clients share, if they are to be secured."""
    if not _is_secured(request.config):
        return None
    if server_kind == "kafka":
        pytest.exit("--secured is for --server odradek", returncode=2)
    return Lock.made_in(tmp_path_factory.mktemp("lock"))


@pytest.fixture(scope="session")
def make_node(server_kind: str, lock: Lock | None) -> Callable[..., Node]:
    """Builds a node of the kind under test; the caller starts and stops it."""
    if lock is not None:
        return functools.partial(LockedNode, lock)
    return OdradekNode if server_kind == "odradek" else KafkaNode


@pytest.fixture(scope="session")
def server(server_kind: str, make_node: Callable[..., Node]) -> Iterator[Server]:
    """The broker process that most tests share; they keep apart by using topics of their own."""
    with running(server_kind, make_node, _QUICK_GROUPS | _OWN_SETTINGS.get(server_kind, {})) as started:
        yield started


@pytest.fixture
def streams_bootstrap(server_kind: str, make_node: Callable[..., Node]) -> Iterator[str]:
    """A broker whose streams groups hear soon of what changes."""
    with running(server_kind, make_node, _STREAMS_GROUPS) as started:
        yield started.node.bootstrap


@pytest.fixture(autouse=True)
def log_of_this_test(request: pytest.FixtureRequest) -> None:
    """Tests that ask what the broker logged about a connection mean their own, whose port others had before."""
    if "server" in request.fixturenames:
        server: Server = request.getfixturevalue("server")
        server.log_mark = len(server.log_text()) if server.kind == "odradek" else 0


@pytest.fixture(scope="session")
def proxied(
    server_kind: str, make_node: Callable[..., Node], lock: Lock | None
) -> Iterator[tuple[Proxy, Server]]:
    """A second broker that advertises the address of a proxy in front of it, so that clients stay on the proxy."""
    with Proxy(lock) as proxy:
        more: dict[str, int] = {}
        if lock is not None:  # the visitor's rules are made through the proxy, once the broker is ready
            lock.guard(proxy.bootstrap)
            more["port"] = free_port()
            proxy.target = ("127.0.0.1", more["port"])
        node = make_node(settings={"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}, **more).start()
        try:
            made = Server(kind=server_kind, node=node)
            proxy.target = made.address
            yield proxy, made
        finally:
            node.stop()


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.node.bootstrap


@pytest.fixture
def topic(server: Server) -> Callable[..., str]:
    """Creates topics: `topic()`, `topic(partitions=3, **{"message.timestamp.type": "LogAppendTime"})`."""

    def create(partitions: int = 1, **settings: str) -> str:
        name = f"interop-{next(_numbers)}"
        server.create_topic(name, partitions, settings)
        return name

    return create


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """Each real client in turn."""
    try:
        made: Client = request.param(bootstrap)
    except AbsentError as reason:
        pytest.skip(f"absent: {reason}")
    return made


class Clients(dict[str, Client]):
    """Clients by name, and why others are missing."""

    def __init__(self) -> None:
        super().__init__()
        self.absent: dict[str, str] = {}

    def __missing__(self, name: str) -> Client:
        pytest.skip(f"absent: {self.absent.get(name, name)}")


@pytest.fixture
def clients(bootstrap: str) -> Clients:
    """All real clients that are here, by name; asking for one that is not skips the test."""
    made = Clients()
    for kind in CLIENTS:
        try:
            made[kind.name] = kind(bootstrap)
        except AbsentError as reason:
            made.absent[kind.name] = str(reason)
    return made


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., wire.Connection]]:
    """Opens plain sockets to the server; closes them after the test."""
    opened: list[wire.Connection] = []

    def connection(**more: int) -> wire.Connection:
        opened.append(wire.Connection(server.address, **more))
        return opened[-1]

    yield connection
    for open_connection in opened:
        open_connection.close()


@pytest.fixture
def bystander(
    server: Server, topic: Callable[..., str], connect: Callable[..., wire.Connection]
) -> Iterator[None]:
    """A healthy client, connected all the while, that must notice nothing: checked before and after the test."""
    name, healthy = topic(), connect()

    def works(offset: int) -> None:
        produced = wire.produce(healthy, name, wire.batch(wire.records(b"healthy"), 1))
        assert (produced.error_code, produced.base_offset) == (0, offset)
        assert b"healthy" in wire.fetch(healthy, name, offset).records

    works(0)
    yield
    works(1)
    server.assert_no_log_line(healthy.name)


@pytest.fixture
def row() -> type[Row]:
    return Row
