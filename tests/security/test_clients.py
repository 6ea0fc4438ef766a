"""Clients that log in: ours, librdkafka, aiokafka, kafka-python; and brokers to each other."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka.admin
import kafka
import pytest
from tests.kit.waiting import until
from tests.scenarios.one_broker import Scene
from tests.security.conftest import FIRST_USERS, PROTOCOLS, Pems

import odradek
from odradek.broker.app import Broker
from odradek.model.errors import ConfigError, KafkaError
from odradek.testing import LocalBroker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECONDS = 20


@pytest.fixture(scope="module")
def broker(pems: Pems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": pems.broker,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": 'x.PlainLoginModule required user_alice="secret";',
        "odradek.scram.first.users": FIRST_USERS,
        "connection.failed.authentication.delay.ms": "1",
    }
    with LocalBroker(settings) as made:
        yield made


def ours(pems: Pems, mechanism: str, password: str = "secret") -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": password,
        "ssl_truststore_location": pems.ca,
        "default_api_timeout_ms": SECONDS * 1000,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in_and_says_why_it_cannot(broker: LocalBroker, pems: Pems, mechanism: str) -> None:
    with odradek.Admin(broker.address, **ours(pems, mechanism)) as admin:
        assert admin.describe_cluster().brokers
    with (
        odradek.Admin(broker.address, **ours(pems, mechanism, "wrong")) as admin,
        pytest.raises(KafkaError, match=r"cannot log in at .*: user or password is wrong \(user 'alice'"),
    ):
        admin.describe_cluster()


@pytest.mark.check(7)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ssl_truststore_location": ""}, "an authority that is not trusted"),
        ({"security_protocol": "PLAINTEXT", "sasl_mechanism": ""}, "wants TLS: set security.protocol"),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": "x"},
            "does not accept the mechanism OAUTHBEARER",
        ),
    ],
)
def test_errors_name_their_cause(
    broker: LocalBroker, pems: Pems, changes: dict[str, str], words: str
) -> None:
    settings = {**ours(pems, "SCRAM-SHA-512"), **changes}
    with odradek.Admin(broker.address, **settings) as admin, pytest.raises(KafkaError, match=words):
        admin.describe_cluster()


@pytest.mark.check(7)
def test_a_certificate_for_another_host_is_refused_unless_any_will_do(pems: Pems) -> None:
    certificate = pems.issue("elsewhere.pem", name="broker", hosts=["elsewhere.example"])
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(certificate)}
    secured: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": pems.ca}
    with LocalBroker(settings) as made:
        words = "its certificate is for another host than 127"
        with odradek.Admin(made.address, **secured) as admin, pytest.raises(KafkaError, match=words):
            admin.describe_cluster()
        secured["ssl_endpoint_identification_algorithm"] = ""
        with odradek.Admin(made.address, **secured) as admin:
            assert admin.describe_cluster().brokers


def test_a_client_whose_settings_do_not_fit_is_refused_before_it_connects() -> None:
    for settings in (
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
        {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "hunter2"},
    ):
        with pytest.raises(ConfigError) as caught:
            odradek.Admin("x:1", **settings)  # type: ignore[arg-type]
        assert "hunter2" not in str(caught.value)


@pytest.mark.check(13, 14)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_and_hears_that_it_may_not(
    broker: LocalBroker, pems: Pems, mechanism: str
) -> None:
    config = {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": pems.ca,
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    assert confluent_kafka.admin.AdminClient(config).list_topics(timeout=SECONDS).brokers
    errors: list[Any] = []
    refused = confluent_kafka.admin.AdminClient(
        {**config, "sasl.password": "wrong", "error_cb": errors.append}
    )
    with pytest.raises(confluent_kafka.KafkaException):
        refused.list_topics(timeout=2)
    refused.poll(1)
    assert any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in(broker: LocalBroker, pems: Pems, mechanism: str) -> None:
    def producer(password: str) -> aiokafka.AIOKafkaProducer:
        return aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.address,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=pems.ca),
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )

    made = producer("secret")
    await made.start()
    await made.send_and_wait("aio", b"x")
    await made.stop()
    made = producer("wrong")
    with pytest.raises(aiokafka.errors.KafkaError):
        await made.start()
    await made.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(broker: LocalBroker, pems: Pems, mechanism: str) -> None:
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=broker.address,
        security_protocol="SASL_SSL",
        ssl_cafile=pems.ca,
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="secret",
    )
    assert admin.describe_cluster()
    admin.close()


def _principals(brokers: list[Broker]) -> set[str]:
    """Returns the principals of all connections."""
    return {connection.requester.principal for made in brokers for connection in made.server.connections}


@pytest.mark.check(7)
async def test_brokers_log_in_to_each_other(tmp_path: Path, pems: Pems) -> None:
    def settings(node_id: int) -> dict[str, str]:
        return {
            "node.id": str(node_id),
            "listeners": "SASL_SSL://127.0.0.1:0",
            "listener.security.protocol.map": PROTOCOLS,
            "ssl.keystore.location": pems.broker,
            "ssl.truststore.location": pems.ca,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.jaas.config": 'x.ScramLoginModule required username="alice" password="secret";',
            "odradek.scram.first.users": FIRST_USERS,
            "odradek.registry.dir": str(tmp_path / "registry"),
            "default.replication.factor": "2",
            "connections.max.reauth.ms": "1500",
            "delegation.token.secret.key": "both know it",
        }

    scenes = [Scene(tmp_path / f"broker-{node_id}") for node_id in (1, 2)]
    try:
        brokers = [await scene.start(**settings(node_id)) for node_id, scene in enumerate(scenes, 1)]
        secured = {**ours(pems, "SCRAM-SHA-512"), "default_api_timeout_ms": SECONDS * 1000}
        async with odradek.AsyncAdmin(brokers[1].address, **secured) as admin:
            await admin.create_topics([odradek.NewTopic("t", 4, 2)])
            for _ in range(3):
                described = (await admin.describe_topics(["t"]))["t"]
                await asyncio.sleep(0.6)
            assert all(len(partition.isr) == 2 for partition in described.partitions)
            made_token = await admin.create_delegation_token()  # the other broker is the controller
        tokened = {
            **secured,
            "sasl_username": "",
            "sasl_password": "",
            "sasl_jaas_config": made_token.jaas_config,
        }
        async with odradek.AsyncAdmin(brokers[1].address, **tokened) as admin:
            assert (await admin.describe_topics(["t"]))["t"].partitions
            with pytest.raises(KafkaError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
                await admin.create_delegation_token()
        # Sessions end after 1.5 s: a link between brokers may be in the middle of its next login.
        await until(lambda: _principals(brokers) == {"User:alice"})
    finally:
        for scene in reversed(scenes):
            await scene.stop()
