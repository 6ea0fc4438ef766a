"""What the matrix cannot show: what answers leave out, partial requests, long polls, forwarded requests, requests without
response.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kit.requests import batch_of, fetch_request, produce_request
from tests.kit.waiting import until
from tests.kit.wire import Wire
from tests.scenarios.administration.test_quotas import set_quota
from tests.scenarios.one_broker import Scene
from tests.scenarios.security.test_matrix import SETTINGS

from odradek.cluster.image import NO_ACLS
from odradek.model.errors import ErrorCode
from odradek.protocol import RequestHeader, api_by_name, decode_response, encode_request
from odradek.protocol.acls import CLUSTER_NAME, AclOperation, AclPermission, AclResourceType, PatternType
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.protocol.messages.cluster.forward import ForwardRequest
from odradek.protocol.messages.data.fetch import FetchPartition, FetchTopic
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.security.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.security.acls import Acl, AclPattern
from odradek.security.authorizer import AclAuthorizer
from odradek.security.principal_builder import AuthenticatedPeer

ME = "User:ANONYMOUS"
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

NEW_USER = ScramCredentialUpsertion(
    name="ann", mechanism=2, iterations=8192, salt=b"s" * 16, salted_password=b"p" * 64
)


def allow(name: str, *operations: AclOperation, kind: AclResourceType = TOPIC, who: str = ME) -> set[Acl]:
    pattern = AclPattern(kind, name, PatternType.LITERAL)
    return {Acl(pattern, who, "*", operation, AclPermission.ALLOW) for operation in operations}


class Doors:
    """A broker whose ACLs a test sets; it begins as a super user, with topics `mine` and `theirs`."""

    def __init__(self, scene: Scene, wire: Wire, authorizer: AclAuthorizer) -> None:
        self.scene = scene
        self.wire = wire
        self._authorizer = authorizer

    def super_user(self) -> None:
        self._authorizer.configure({"super.users": ME})

    def only(self, *acls: set[Acl]) -> None:
        self._authorizer.configure({})
        self._authorizer.update((frozenset(set().union(*acls)), *NO_ACLS[1:]))


@pytest.fixture
async def doors(scene: Scene) -> Doors:
    broker = await scene.start(**SETTINGS)
    authorizer = broker.context.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    new_doors = Doors(scene, await scene.connect(), authorizer)
    new_doors.super_user()
    for topic in ("mine", "theirs"):
        await new_doors.wire.create(topic)
    return new_doors


@pytest.mark.check(41)
async def test_allowed_partitions_of_a_request_are_written_and_the_others_refused(doors: Doors) -> None:
    doors.only(allow("mine", WRITE, READ))
    request = produce_request("mine", batch_of([b"a"]))
    theirs = TopicProduceData(
        name="theirs", partition_data=[PartitionProduceData(index=0, records=batch_of([b"b"]))]
    )
    request = request.replace(topic_data=[*request.topic_data, theirs])
    response = await doors.wire.ask(request, 9)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {"mine": 0, "theirs": REFUSED}
    assert await doors.wire.values("mine") == [b"a"]
    doors.super_user()
    assert await doors.wire.values("theirs") == []


async def test_a_refused_request_without_answer_closes_the_connection_and_writes_nothing(
    doors: Doors,
) -> None:
    doors.only()
    doors.wire.ask_later(produce_request("mine", batch_of([b"a"]), acks=0), 9)
    doors.wire.expect_no_response()
    assert await doors.wire.closed_by_broker()
    doors.super_user()
    assert await (await doors.scene.connect()).values("mine") == []


@pytest.mark.check(40)
async def test_topics_that_may_not_be_described_are_left_out_where_all_are_asked_for(doors: Doors) -> None:
    doors.only(allow("mine", DESCRIBE))
    for version in (0, 1, 9, 13):
        response = await doors.wire.ask(MetadataRequest(topics=[] if version == 0 else None), version)
        assert [topic.name for topic in response.topics] == ["mine"]
        assert response.brokers
    first = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1)
    pages = await doors.wire.ask(first, 0)
    assert [topic.name for topic in pages.topics] == ["mine"]
    assert pages.next_cursor is None
    doors.only()
    pages = await doors.wire.ask(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert pages.topics == []


@pytest.mark.check(40)
@pytest.mark.parametrize("version", [0, 4, 9, 12, 13])
async def test_a_topic_that_is_named_looks_the_same_whether_it_exists_or_not(
    doors: Doors, version: int
) -> None:
    doors.only()
    names = ["theirs", "absent"]
    response = await doors.wire.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), version
    )
    plain = [topic.replace(name="?") for topic in response.topics]
    assert [topic.error_code for topic in plain] == [REFUSED, REFUSED]
    assert plain[0] == plain[1]
    assert response.brokers


@pytest.mark.check(42)
async def test_operations_are_those_that_the_asker_may_do(doors: Doors) -> None:
    doors.only(allow("mine", READ), allow(CLUSTER_NAME, DESCRIBE, kind=CLUSTER))
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="mine")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = await doors.wire.ask(request, 9)
    assert response.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE
    assert response.cluster_authorized_operations == 1 << DESCRIBE
    doors.only(allow("mine", READ))
    assert (await doors.wire.ask(request, 9)).cluster_authorized_operations == 0
    unasked = await doors.wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="mine")]), 9)
    assert unasked.topics[0].topic_authorized_operations == -(2**31)


@pytest.mark.check(42)
async def test_a_fetch_that_waits_is_refused_when_its_right_ends(doors: Doors) -> None:
    writer = await doors.scene.connect()
    doors.only(allow("mine", READ, WRITE))
    doors.wire.ask_later(fetch_request("mine", 0, max_wait_ms=20_000), 11)
    await asyncio.sleep(0.05)
    doors.only(allow("mine", WRITE))
    assert (await writer.produce("mine", [b"secret"])).error_code == 0
    data = (await doors.wire.response()).responses[0].partitions[0]
    assert data.error_code == REFUSED
    assert not data.records


@pytest.mark.check(42)
async def test_a_fetch_session_is_checked_each_time(doors: Doors) -> None:
    doors.only(allow("mine", READ), allow("theirs", READ))
    topics = [
        FetchTopic(
            topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
        )
        for name in ("mine", "theirs")
    ]
    first = fetch_request("mine", 0).replace(topics=topics, session_epoch=0, min_bytes=0)
    session = (await doors.wire.ask(first, 11)).session_id
    doors.only(allow("mine", READ))
    again = first.replace(topics=[], session_id=session, session_epoch=1)
    response = await doors.wire.ask(again, 11)
    codes = {topic.topic: topic.partitions[0].error_code for topic in response.responses}
    assert codes == {"theirs": REFUSED}


async def test_groups_and_offsets_that_may_not_be_described_are_left_out(doors: Doors) -> None:
    await doors.wire.find_coordinator("g")
    from_all = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    for topic in ("mine", "theirs"):
        await doors.wire.ask(commit("g", topic), 9)
    assert {topic.name for topic in (await doors.wire.ask(from_all, 8)).groups[0].topics} == {
        "mine",
        "theirs",
    }
    doors.only(allow("g", DESCRIBE, kind=GROUP), allow("mine", DESCRIBE))
    response = await doors.wire.ask(from_all, 8)
    assert [topic.name for topic in response.groups[0].topics] == ["mine"]
    assert [group.group_id for group in (await doors.wire.ask(ListGroupsRequest(), 4)).groups] == ["g"]
    doors.only(allow("mine", DESCRIBE))
    assert (await doors.wire.ask(ListGroupsRequest(), 4)).groups == []
    assert (await doors.wire.ask(from_all, 8)).groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def commit(group: str, topic: str) -> Any:
    request = api_by_name("OffsetCommit").request
    kind = {field.name: field.kind for field in request.FIELDS}["topics"].element.cls  # type: ignore[attr-defined]
    partition = {field.name: field.kind for field in kind.FIELDS}["partitions"].element.cls
    topics = [
        kind(name=topic, partitions=[partition(partition_index=0, committed_offset=0, committed_metadata="")])
    ]
    return request(group_id=group, generation_id_or_member_epoch=-1, topics=topics)  # type: ignore[call-arg]


async def test_settings_of_a_new_topic_are_shown_to_those_that_may_see_them(doors: Doors) -> None:
    wanted = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=2, replication_factor=1)],
        timeout_ms=5000,
        validate_only=True,
    )
    doors.only(allow("new", AclOperation.CREATE))
    (hidden,) = (await doors.wire.ask(wanted, 7)).topics
    assert (hidden.error_code, hidden.topic_config_error_code, hidden.num_partitions, hidden.configs) == (
        0,
        REFUSED,
        -1,
        [],
    )
    doors.only(allow("new", AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS))
    (shown,) = (await doors.wire.ask(wanted, 7)).topics
    assert (shown.topic_config_error_code, shown.num_partitions) == (0, 2)
    assert shown.configs


async def test_a_forwarded_request_is_the_askers_and_only_who_acts_for_the_cluster_may_forward(
    doors: Doors,
) -> None:
    api = api_by_name("CreateTopics")
    wanted = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)],
        timeout_ms=5000,
        validate_only=True,
    )
    inner = encode_request(RequestHeader(api.key, 7, 5, "c"), wanted)[4:]
    act = allow(CLUSTER_NAME, AclOperation.CLUSTER_ACTION, AclOperation.CREATE, kind=CLUSTER)

    async def forwarded(principal: str) -> Any:
        request = ForwardRequest(request_data=inner, principal=principal, client_host="10.0.0.1")
        return await doors.wire.ask(request, 0)

    def code_of(response: Any) -> int:
        return int(decode_response(api.key, 7, response.response_data)[1].topics[0].error_code)  # type: ignore[attr-defined]

    doors.only(allow("new", AclOperation.CREATE, who="User:alice"))
    assert (await forwarded("User:alice")).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    doors.only(act, allow("new", AclOperation.CREATE, who="User:alice"))
    assert code_of(await forwarded("User:alice")) == 0
    assert (
        code_of(await forwarded("User:bob")) == REFUSED
    )  # though the broker that passes it on may create topics


async def test_a_request_of_many_topics_takes_turns_and_every_topic_is_answered(doors: Doors) -> None:
    doors.only(allow("mine", DESCRIBE))
    names = [f"absent-{number}" for number in range(3000)]
    response = await doors.wire.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ["mine", *names]]), 9
    )
    codes = [topic.error_code for topic in response.topics]
    assert codes == [0, *[REFUSED] * 3000]


async def test_many_topics_to_be_written_are_refused_one_by_one(doors: Doors) -> None:
    doors.only(allow("mine", WRITE))
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch_of([b"v"]))])
        for name in ["mine", *(f"absent-{number}" for number in range(600))]
    ]
    response = await doors.wire.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes.pop("mine") == 0
    assert set(codes.values()) == {REFUSED}
    assert len(codes) == 600


@pytest.mark.check(43)
async def test_what_brokers_keep_for_themselves_no_client_writes(doors: Doors) -> None:
    """Not even a super user: a record there is state of a group, and a control batch ends a transaction."""
    await doors.wire.find_coordinator("g")
    assert (
        await doors.wire.produce("__consumer_offsets", [b"forged"])
    ).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    control = batch_of(
        [b"v"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, control=True
    )
    response = await doors.wire.ask(produce_request("mine", control).replace(transactional_id="x"), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


@pytest.mark.check(46)
async def test_a_refused_request_counts_against_the_quota_of_its_user(doors: Doors) -> None:
    quotas = doors.scene.broker.context.quotas  # type: ignore[union-attr]
    quotas.update({(("user", "ANONYMOUS"),): {"producer_byte_rate": 1000.0}})
    doors.only()
    for _ in range(3):
        response = await doors.wire.ask(produce_request("mine", batch_of([b"v" * 10_000])), 9)
        assert response.responses[0].partition_responses[0].error_code == REFUSED
        if response.throttle_time_ms > 0:
            return
    pytest.fail("a client that is refused is not slowed down")


@pytest.mark.check(42)
async def test_a_change_is_answered_when_every_broker_goes_by_it(tmp_path: Path) -> None:
    first, second = Scene(tmp_path / "one"), Scene(tmp_path / "two")
    own = {**SETTINGS, "super_users": ME}
    try:
        await first.start(**own)
        registry = str(tmp_path / "one" / "data")
        await second.start(**own, node_id="2", odradek_registry_dir=registry)
        wire = await second.connect()
        authorizers: list[Any] = [scene.broker.context.authorizer for scene in (first, second)]  # type: ignore[union-attr]
        asked = ("User:alice", "10.0.0.1", READ, TOPIC, "orders")
        for _ in range(5):
            rules = [
                AclCreation(
                    resource_type=2,
                    resource_name="orders",
                    principal="User:alice",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
            made = await wire.ask(CreateAclsRequest(creations=rules), 3)
            assert made.results[0].error_code == 0
            assert [authorizer.may(*asked) for authorizer in authorizers] == [True, True]
            gone = DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter="orders",
                pattern_type_filter=3,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            response = await wire.ask(DeleteAclsRequest(filters=[gone]), 3)
            assert len(response.filter_results[0].matching_acls) == 1
            assert [authorizer.may(*asked) for authorizer in authorizers] == [False, False]
    finally:
        await second.stop()
        await first.stop()


@pytest.mark.check(42)
async def test_a_new_user_is_known_to_every_broker_before_the_answer(tmp_path: Path) -> None:
    first, second = Scene(tmp_path / "one"), Scene(tmp_path / "two")
    own = {**SETTINGS, "super_users": ME}
    try:
        controller = (await first.start(**own)).context
        registry = str(tmp_path / "one" / "data")
        other = (await second.start(**own, node_id="2", odradek_registry_dir=registry)).context
        wire, another = await first.connect(), await first.connect()
        async with other.cluster._applying:  # the second broker is slow
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[NEW_USER])
            altering = asyncio.create_task(wire.ask(request, 0))
            await until(lambda: NEW_USER.name in controller.image.scram_users.users)
            for _ in range(3):
                await another.ask(ListGroupsRequest(states_filter=[]), 4)
            assert not altering.done()
        assert (await altering).results[0].error_code == 0
        assert NEW_USER.name in other.image.scram_users.users
    finally:
        await second.stop()
        await first.stop()


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_who_claims_to_be_a_broker_has_no_quota_only_if_it_may_act_as_one(
    doors: Doors, is_allowed: bool
) -> None:
    await set_quota(doors.wire, {"client-id": "test"}, producer_byte_rate=1.0)
    software = ApiVersionsRequest(client_software_name=BROKER_SOFTWARE, client_software_version="1")
    assert (await doors.wire.ask(software, 3)).error_code == 0
    may_act = allow(CLUSTER_NAME, AclOperation.CLUSTER_ACTION, kind=CLUSTER) if is_allowed else set()
    doors.only(allow("mine", WRITE), may_act)
    produced = await doors.wire.ask(produce_request("mine", batch_of([b"x" * 1000])), 9)
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert (produced.throttle_time_ms == 0) is is_allowed


class ByListener:
    """A principal builder: the name of the listener is the name of the user."""

    def build(self, peer: AuthenticatedPeer) -> str:
        assert peer.principal == ME
        return f"User:{peer.listener_name.lower()}"


async def test_a_principal_builder_says_who_a_connection_acts_for(scene: Scene) -> None:
    listeners = "ALICE://127.0.0.1:0,BOB://127.0.0.1:0"
    broker = await scene.start(
        **{**SETTINGS, "super_users": "User:alice"},
        listeners=listeners,
        listener_security_protocol_map="ALICE:PLAINTEXT,BOB:PLAINTEXT",
        inter_broker_listener_name="ALICE",
        principal_builder_class=f"{__name__}.ByListener",
    )
    alice = await scene.connect()
    assert (await alice.create("hers")).error_code == 0
    bob = await scene.connect(broker.addresses[1][1])
    assert (await bob.create("his")).error_code == REFUSED
    assert (await bob.produce("hers", [b"v"])).error_code == REFUSED


async def test_a_rule_about_all_topics_writes_no_topic_that_programs_take_orders_or_state_from(
    doors: Doors,
) -> None:
    closed = ("__odradek_pipelines", "__odradek_new", "_schemas", "_odradek-sql-a-commands", "a-b-changelog")
    for topic in closed:
        await doors.wire.create(topic)
    doors.only(allow("*", AclOperation.ALL))
    for topic in closed:
        assert (await doors.wire.produce(topic, [b"forged"])).error_code == REFUSED
        assert (await doors.wire.fetch(topic, 0)).error_code == 0
    assert (await doors.wire.produce("mine", [b"v"])).error_code == 0
    doors.only(*(allow(topic, WRITE, READ) for topic in closed))
    for topic in closed:
        assert (await doors.wire.produce(topic, [b"v"])).error_code == 0
        assert await doors.wire.values(topic) == [b"v"]


async def test_without_an_authorizer_every_topic_can_be_written(scene: Scene) -> None:
    await scene.start()
    wire = await scene.connect()
    for topic in ("__odradek_pipelines", "a-b-changelog"):
        await wire.create(topic)
        assert (await wire.produce(topic, [b"v"])).error_code == 0
