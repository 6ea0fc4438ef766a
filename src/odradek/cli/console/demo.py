"""`odradek console --demo`: three brokers to look at, with flights that keep coming, and groups that read them or do not."""

from __future__ import annotations

import json
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from odradek.cli.progress import waiting_line
from odradek.cli.serving.broker_processes import Fleet
from odradek.cli.serving.own_directory import own_directory
from odradek.cli.serving.secure import write_private
from odradek.cli.sql.sandbox import AIRPORT_ROWS, flight, sql_server
from odradek.client import (
    Acl,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResourceType,
    Admin,
    Consumer,
    NewPassword,
    NewTopic,
    PatternType,
    Producer,
    QuotaEntity,
)
from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure, letter_headers
from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest
from odradek.sql.rest_client import RestClient

_BROKERS: Final = 3
_HOST: Final = "127.0.0.1"
_ATTEMPTS: Final = 100
_CERTIFICATE_DAYS: Final = 10
"""The life of the brokers' certificate: it ends so soon that the console warns of it."""
_PAUSE_S: Final = 0.1
_STOP_S: Final = 20.0
_FIRST_RECORDS: Final = 2_000
_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "odradek.audit.sinks": "topic",
    "odradek.slow.request.ms": "10",
}
"""Everyone on this machine may do everything: rules, users and quotas are there to be looked at and changed."""
FLIGHTS: Final = "flights"
LETTERS: Final = "flights.board.dlq"
BOARD: Final = "board"
"""A group that reads the flights."""
BILLING: Final = "billing"
"""A group that has read some of them, and whose consumers have left."""
CHECK_IN: Final = "check-in"
"""A share group that has read some bookings."""
_TOPICS: Final = (
    NewTopic(FLIGHTS, 6),
    NewTopic(LETTERS, 1),
    NewTopic("airports", 1, configs={"cleanup.policy": "compact"}),
    NewTopic("bookings.eu", 4, configs={"retention.ms": "86400000"}),
    NewTopic("bookings.us", 4, configs={"retention.ms": "86400000"}),
)


_STATEMENTS: Final = """
CREATE TABLE airports (code STRING PRIMARY KEY, city STRING, country STRING)
    WITH (KAFKA_TOPIC='airports', VALUE_FORMAT='JSON');
CREATE STREAM flights (origin STRING KEY, flight STRING, destination STRING, delay_minutes INT, seats INT)
    WITH (KAFKA_TOPIC='flights', VALUE_FORMAT='JSON');
"""
_SQL_NEEDS: Final = ("sqlglot", "hypercorn")
"""The modules of a SQL server that answers without Spark."""


class DemoCluster(NamedTuple):
    """The addresses of the demo."""

    bootstrap: str
    sql: str | None
    """The SQL server's; None where `odradek[sql]` is not installed."""
    metrics: tuple[str, ...] = ()
    """The metrics listener of each broker."""


@contextmanager
def demo_cluster() -> Iterator[DemoCluster]:
    """Yields the addresses of the cluster. Everything ends with the block or with this process, and its data goes."""
    with (
        own_directory("odradek-console-demo-") as directory,
        _ports_in_a_row(_BROKERS) as ports,
        Fleet.plan(
            _BROKERS, directory / "brokers", settings=_settings(directory, ports[0]), apart=True
        ) as fleet,
        ThreadPoolExecutor(1, thread_name_prefix="odradek-demo-fill") as pool,
        _sql(fleet.bootstrap, directory, pool.submit(_fill, fleet.bootstrap)) as url,
    ):
        ended = threading.Event()
        traffic = [
            threading.Thread(target=work, args=[fleet.bootstrap, ended], name=work.__name__, daemon=True)
            for work in (_fly, _show_on_board)
        ]
        for thread in traffic:
            thread.start()
        try:
            yield DemoCluster(fleet.bootstrap, url, tuple(f"{_HOST}:{port}" for port in ports))
        finally:
            ended.set()
            for thread in traffic:
                thread.join(_STOP_S)


def _settings(directory: Path, metrics_port: int) -> dict[str, str]:
    """Returns the settings of the brokers; with a certificate that ends soon, where `odradek[security]` can make one."""
    settings = {**_SETTINGS, "metrics.listeners": f"{_HOST}:{metrics_port}"}
    if find_spec("cryptography") is None:
        return settings
    now = datetime.now(UTC)
    request = CertificateRequest(
        name="odradek-demo", hosts=(_HOST, "localhost"), is_server=True, days=_CERTIFICATE_DAYS
    )
    certificate = directory / "broker.pem"
    write_private(certificate, CertificateAuthority.new("odradek-demo", now=now).issue(request, now=now).pem)
    return {
        **settings,
        "listeners": f"PLAINTEXT://{_HOST}:0,SSL://{_HOST}:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
    }


@contextmanager
def _ports_in_a_row(count: int) -> Iterator[range]:
    """Yields ports that follow one another, and holds them, so that only a process that names one can listen there.

    A socket that is bound and does not listen keeps the system from giving the port to others (`BrokerProcess` does so, too).
    """
    for _ in range(_ATTEMPTS):
        with ExitStack() as held:
            first = held.enter_context(_bound(0))
            port = first.getsockname()[1]
            try:
                for number in range(1, count):
                    held.enter_context(_bound(port + number))
            except (OSError, OverflowError):
                continue
            yield range(port, port + count)
            return
    raise OdradekError(f"there are no {count} free ports that follow one another, for metrics.listeners")


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_HOST, port))
    except BaseException:
        bound.close()
        raise
    return bound


@contextmanager
def _sql(servers: str, directory: Path, filling: Future[None]) -> Iterator[str | None]:
    """Yields the URL of a SQL server with the flights as a stream, once the topics are filled; it starts
    meanwhile.

    It has no JVM until a query needs Spark.
    """
    if any(find_spec(name) is None for name in _SQL_NEEDS):
        with waiting_line("three brokers with flights"):
            filling.result()
        yield None
        return
    with sql_server(servers, directory) as url:
        with waiting_line("three brokers with flights"):
            filling.result()
            RestClient(url=url).execute(_STATEMENTS + AIRPORT_ROWS)
        yield url


def _fill(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topics(_TOPICS)
        _add_people(admin)
        admin.alter_share_group_offsets(CHECK_IN, {TopicPartition("bookings.eu", 0): 3})
    chance = random.Random(1)
    with Producer(servers) as producer:
        for number in range(_FIRST_RECORDS):
            _send_flight(producer, chance, number)
        for number in range(_FIRST_RECORDS // 4):
            booking = {"seat": f"{number % 30 + 1}{'ABCDEF'[number % 6]}", "price": chance.randint(60, 900)}
            producer.send(
                f"bookings.{'eu' if number % 3 else 'us'}", json.dumps(booking).encode(), key=b"%d" % number
            )
        failure = RecordFailure(exception="KeyError", message="'DESTINATION'", stage="value")
        for number in range(5):
            origin = Origin(topic=FLIGHTS, partition=number % 6, offset=number)
            headers = letter_headers([], origin, failure, FailedConsumer(group=BOARD, delivery_count=3))
            producer.send(LETTERS, b'{"FLIGHT": "TK%d"}' % number, key=b"IST", headers=headers)
    with Consumer(servers, group_id=BILLING, auto_offset_reset="earliest", max_poll_records=200) as consumer:
        consumer.subscribe([FLIGHTS])
        while not consumer.poll(1.0):
            pass
        consumer.commit()


def _add_people(admin: Admin) -> None:
    """Adds users, what they may do, and how much. No one can log in as them: the brokers listen in plain text."""
    for user in ("ann", "bob"):
        admin.alter_users({user: NewPassword(password=secrets.token_urlsafe(), iterations=4096)})
    flights = AclPattern(AclResourceType.TOPIC, FLIGHTS)
    bookings = AclPattern(AclResourceType.TOPIC, "bookings.", PatternType.PREFIXED)
    admin.create_acls(
        [
            Acl(flights, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW),
            Acl(
                AclPattern(AclResourceType.GROUP, BOARD),
                "User:ann",
                "*",
                AclOperation.READ,
                AclPermission.ALLOW,
            ),
            Acl(bookings, "User:bob", "*", AclOperation.WRITE, AclPermission.ALLOW),
        ]
    )
    admin.alter_quotas(
        {
            QuotaEntity(user="bob"): {"producer_byte_rate": 1_000_000.0},
            QuotaEntity(client_id="departures"): {"producer_byte_rate": 5_000_000.0},
        }
    )


def _send_flight(producer: Producer, chance: random.Random, number: int) -> None:
    origin, departure = flight(chance, number)
    value = json.dumps(departure).encode()
    producer.send(FLIGHTS, value, key=origin.encode(), timestamp_ms=int(time.time() * 1000))


def _fly(servers: str, ended: threading.Event) -> None:
    """Sends flights until the end."""
    chance = random.Random(2)
    with Producer(servers, client_id="departures") as producer:
        number = _FIRST_RECORDS
        while not ended.wait(_PAUSE_S):
            _send_flight(producer, chance, number)
            number += 1


def _show_on_board(servers: str, ended: threading.Event) -> None:
    """Reads flights as a member of a group until the end."""
    with Consumer(servers, group_id=BOARD, client_id="board-1", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([FLIGHTS])
        while not ended.is_set():
            if consumer.poll(0.5):
                consumer.commit()
