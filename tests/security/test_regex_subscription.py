"""A regular expression of a consumer group finds what the member may describe, in a broker with rules of access."""

import asyncio

from tests.security.conftest import FIRST_USERS, SecureScene, log_in

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest
from odradek.security.sasl.scram import ScramClient

SCRAM = "SCRAM-SHA-512"
TRIES_MAX = 200
TOPIC, GROUP, LITERAL, ALLOW, READ, DESCRIBE = 2, 3, 3, 3, 3, 8


def allow(kind: int, name: str, operation: int) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal="User:ann",
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )


async def test_topics_that_a_member_may_not_describe_are_not_there(scene: SecureScene) -> None:
    await scene.secure(
        "SASL_PLAINTEXT",
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:alice",
            "odradek.scram.first.users": f"{FIRST_USERS};{SCRAM}=[name=ann,password=secret]",
        },
    )
    alice, ann = await scene.wire(), await scene.wire()
    await log_in(alice, ScramClient(SCRAM, "alice", "secret", "nonce"), SCRAM)
    await log_in(ann, ScramClient(SCRAM, "ann", "secret", "nonce"), SCRAM)
    for topic in ("orders-eu", "orders-us"):
        await alice.create(topic)
    rules = CreateAclsRequest(creations=[allow(GROUP, "g", READ), allow(TOPIC, "orders-eu", DESCRIBE)])
    created = await alice.ask(rules, 3)
    assert [rule.error_code for rule in created.results] == [0, 0]
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex="orders-.*",
        topic_partitions=[],
    )
    await ann.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    joined = await ann.ask(heartbeat, 1)
    for _ in range(TRIES_MAX):
        if joined.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            break
        await asyncio.sleep(0.05)
        joined = await ann.ask(heartbeat, 1)
    assert joined.error_code == 0
    eu = scene.broker.context.image.topics["orders-eu"]  # type: ignore[union-attr]
    assert [place.topic_id for place in joined.assignment.topic_partitions] == [eu.topic_id]
