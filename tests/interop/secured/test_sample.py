"""Tests of other folders, against a broker with TLS, a login and ACLs; and those that do not get in there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from tests.interop import logins, wire
from tests.interop.data.test_cross_client import test_writers_may_take_turns_in_one_partition
from tests.interop.groups.test_classic_groups import (
    test_aiokafka_consumes_in_a_group_and_resumes,
    test_kafka_python_consumes_in_a_group_and_resumes,
    test_kcat_consumes_in_a_group_and_resumes,
)
from tests.interop.logins import Lock, LockedNode
from tests.interop.own_client.test_records import test_text_and_serializers_make_bytes
from tests.interop.own_client.test_retry import (
    test_what_fails_goes_through_the_retry_topics_and_the_rest_goes_on,
)
from tests.interop.server import Server
from tests.interop.transactions.test_transactions import test_different_clients_take_turns_under_one_name

import odradek
from odradek.client.admin.users import NewPassword

SECONDS = 20
_numbers = itertools.count()

__all__ = [
    "test_aiokafka_consumes_in_a_group_and_resumes",
    "test_different_clients_take_turns_under_one_name",
    "test_kafka_python_consumes_in_a_group_and_resumes",
    "test_kcat_consumes_in_a_group_and_resumes",
    "test_text_and_serializers_make_bytes",
    "test_what_fails_goes_through_the_retry_topics_and_the_rest_goes_on",
    "test_writers_may_take_turns_in_one_partition",
]


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Lock:
    return Lock.made_in(tmp_path_factory.mktemp("lock"))


@pytest.fixture(scope="module")
def server(lock: Lock) -> Iterator[Server]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "connection.failed.authentication.delay.ms": "1",
    }
    node = LockedNode(lock, settings=settings).start()
    try:
        yield Server(kind="odradek", node=node)
    finally:
        node.stop()


@pytest.fixture
def group() -> str:
    return f"secured-{next(_numbers)}"


@pytest.mark.check(9)
def test_requests_before_a_login_are_not_answered(server: Server, lock: Lock) -> None:
    with wire.Connection(server.address) as visitor:
        assert visitor.call(wire.METADATA, 4, wire.metadata_body([])).left
    with lock.client_context().wrap_socket(
        wire.socket.create_connection(server.address), server_hostname="127.0.0.1"
    ) as stranger:
        stranger.settimeout(SECONDS)
        stranger.sendall(wire.frame(wire.METADATA, 4, 1, wire.metadata_body(None)))
        assert stranger.recv(1) == b""


@pytest.mark.check(35)
def test_a_user_without_rules_writes_nothing(server: Server, lock: Lock, topic: Callable[..., str]) -> None:
    name, address = topic(), server.node.bootstrap
    with odradek.Admin.from_config({"bootstrap.servers": address, **lock.client_settings("admin")}) as admin:
        admin.alter_users({"stranger": NewPassword(password="knows-no-one")})
    settings = {**logins.librdkafka(address), "sasl.username": "stranger", "sasl.password": "knows-no-one"}
    refused: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer({**settings, "log_level": 2})
    producer.produce(name, b"x", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(SECONDS) == 0
    assert [error.code() for error in refused] == [confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED]
