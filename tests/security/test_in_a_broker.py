"""In a broker: signed tokens, a certificate that settings replace, rules from a file, answers that hide topics."""

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import confluent_kafka.admin
import pytest
from tests.kit.waiting import until
from tests.scenarios.security.requests import Names, request_of
from tests.security.conftest import SecureScene, log_in
from tests.security.test_mechanisms import JWKS, token

import odradek
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.share import share_acknowledge as acknowledge
from odradek.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from odradek.security.sasl.oauthbearer import BearerClient

SECONDS = 20
BROKER, SET = 4, 0
AUTHORIZER = "odradek.broker.access.file_authorizer.FileAuthorizer"


def fresh(lifetime_s: int = 60, **claims: Any) -> str:
    now_s = int(time.time())
    return token(iat=now_s, exp=now_s + lifetime_s, **claims)


async def with_tokens(scene: SecureScene) -> None:
    keys = scene.pems.write("jwks.json", json.dumps(JWKS).encode())
    await scene.secure(
        "SASL_PLAINTEXT",
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
            "sasl.oauthbearer.expected.audience": "kafka",
        },
    )


@pytest.mark.check(26, 27, 28, 31, 32)
async def test_a_signed_token_logs_in_and_others_do_not(scene: SecureScene) -> None:
    await with_tokens(scene)
    wire = await scene.wire()
    last_reply = await log_in(wire, BearerClient(fresh), "OAUTHBEARER")
    assert last_reply.error_code == 0
    assert 0 < last_reply.session_lifetime_ms <= 60_000
    (connection,) = scene.broker.server.connections  # type: ignore[union-attr]
    assert connection.requester.principal == "User:ann"
    for bad in (fresh(-60), fresh(aud="other"), fresh()[:-6] + "AAAAAA"):
        wire = await scene.wire()
        refused = await log_in(wire, BearerClient(partial(str, bad)), "OAUTHBEARER")
        assert refused.error_code in (0, ErrorCode.SASL_AUTHENTICATION_FAILED)
        if refused.error_code == 0:
            assert b"invalid_token" in refused.auth_bytes


@pytest.mark.check(26)
async def test_clients_log_in_by_signed_tokens(scene: SecureScene) -> None:
    await with_tokens(scene)
    assert scene.broker is not None
    address = scene.broker.address
    secured: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "default_api_timeout_ms": SECONDS * 1000,
    }
    async with odradek.AsyncAdmin(address, **secured, sasl_oauthbearer_token=fresh()) as admin:
        assert (await admin.describe_cluster()).brokers
    async with odradek.AsyncAdmin(address, **secured, sasl_oauthbearer_token=fresh(aud="other")) as admin:
        with pytest.raises(KafkaError, match="cannot log in"):
            await admin.describe_cluster()

    def librdkafka() -> int:
        made = confluent_kafka.admin.AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda config: (fresh(), time.time() + 60),
            }
        )
        return len(made.list_topics(timeout=SECONDS).brokers)

    assert await asyncio.to_thread(librdkafka) == 1


@pytest.mark.check(8)
async def test_a_dynamic_setting_replaces_a_listeners_certificate(scene: SecureScene) -> None:
    await scene.secure("SSL")
    wire = await scene.wire(scene.pems.client_context())
    before = serial_number(wire)
    new = scene.pems.issue("broker-2.pem", name="broker", hosts=["localhost", "127.0.0.1"])
    other = scene.pems.issue("broker-3.pem", name="another", hosts=["localhost", "127.0.0.1"])
    assert (await alter(wire, "listener.name.ssl.ssl.keystore.location", str(new))).error_code == 0
    after = serial_number(await scene.wire(scene.pems.client_context()))
    assert after != before
    await alter(wire, "listener.name.ssl.ssl.keystore.location", str(other))  # for another subject
    assert serial_number(await scene.wire(scene.pems.client_context())) == after


async def alter(wire: Any, name: str, value: str) -> Any:
    config = AlterableConfig(name=name, config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    response = await wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return response.responses[0]


def serial_number(wire: Any) -> str:
    return str(wire.about("ssl_object").getpeercert()["serialNumber"])


@pytest.mark.check(35, 39)
async def test_rules_from_a_file_decide_and_count_once_they_change(
    scene: SecureScene, tmp_path: Path
) -> None:
    path = tmp_path / "rules.json"
    cluster = {"effect": "allow", "principals": ["User:ANONYMOUS"], "resources": ["CLUSTER:*"]}
    mine = {"effect": "allow", "principals": ["*"], "resources": ["TOPIC:mine*"]}
    path.write_text(json.dumps([cluster, mine]))
    await scene.secure(
        "PLAINTEXT", {"authorizer.class.name": AUTHORIZER, "odradek.authorizer.file": str(path)}
    )
    wire = await scene.wire()
    for topic in ("mine", "theirs"):
        assert (await wire.create(topic)).error_code == 0
    assert (await wire.produce("mine", [b"v"])).error_code == 0
    assert (await wire.produce("theirs", [b"v"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    path.write_text(json.dumps([{"effect": "deny", "hosts": ["10.*"]}, {"effect": "allow"}]))
    assert (await wire.produce("theirs", [b"v"])).error_code == 0
    path.write_text("no rules at all")
    assert (await wire.produce("theirs", [b"v"])).error_code == 0  # those from before it
    path.write_text(json.dumps([{"effect": "deny", "operations": ["WRITE"]}, {"effect": "allow"}]))
    assert (await wire.produce("mine", [b"v"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def restricted(scene: SecureScene, tmp_path: Path) -> tuple[Any, Path, dict[str, UUID]]:
    """A broker with rules from a file, which allows everything at first; topics `orders` and `theirs`."""
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([{"effect": "allow"}]))
    await scene.secure(
        "PLAINTEXT",
        {
            "authorizer.class.name": AUTHORIZER,
            "odradek.authorizer.file": str(path),
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
        },
    )
    wire = await scene.wire()
    for topic in ("orders", "theirs"):
        await wire.create(topic)
    topics = (await wire.ask(MetadataRequest(topics=None), 12)).topics
    return wire, path, {topic.name: topic.topic_id for topic in topics}


@pytest.mark.check(39, 40)
async def test_a_transaction_does_not_show_topics_that_may_not_be_described(
    scene: SecureScene, tmp_path: Path
) -> None:
    wire, path, _ = await restricted(scene, tmp_path)
    await wire.ask(request_of("FindCoordinator", 4, "key_type=1"), 4)
    made = await until(
        lambda: wire.ask(request_of("InitProducerId", 4), 4),
        holds=lambda made: not made.error_code,
    )
    wanted = request_of("AddPartitionsToTxn", 3)
    topics = wanted.v3_and_below_topics
    wanted = wanted.replace(
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[*topics, topics[0].replace(name="theirs")],
    )
    response = await wire.ask(wanted, 3)
    assert {topic.name for topic in response.results_by_topic_v3_and_below} == {"orders", "theirs"}
    request = DescribeTransactionsRequest(transactional_ids=["payer"])
    shown = await wire.ask(request, 0)
    assert {topic.topic for topic in shown.transaction_states[0].topics} == {"orders", "theirs"}
    path.write_text(json.dumps([{"effect": "deny", "resources": ["TOPIC:theirs"]}, {"effect": "allow"}]))
    shown = await wire.ask(request, 0)
    assert [topic.topic for topic in shown.transaction_states[0].topics] == ["orders"]


@pytest.mark.check(39, 41)
async def test_records_of_a_topic_that_may_not_be_read_are_not_acknowledged(
    scene: SecureScene, tmp_path: Path
) -> None:
    wire, path, ids = await restricted(scene, tmp_path)
    Names.topic_id = ids["orders"]
    await wire.find_coordinator("sharers")
    await until(
        lambda: wire.ask(request_of("ShareFetch", 1), 1),
        holds=lambda response: not response.error_code,
    )
    path.write_text(json.dumps([{"effect": "deny", "resources": ["TOPIC:orders"]}, {"effect": "allow"}]))
    batch = acknowledge.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topic = acknowledge.AcknowledgeTopic(topic_id=ids["orders"], partitions=[partition])
    request = request_of("ShareAcknowledge", 1).replace(topics=[topic])
    response = await wire.ask(request, 1)
    (answered,) = response.responses
    assert answered.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
