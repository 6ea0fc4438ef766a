"""What one broker answers about its cluster: in every version, to sensible requests and to bad ones, in Kafka's codes."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.contract.parity.recording import recorded

from odradek.protocol import APIS, api_by_name
from odradek.protocol.messages.cluster import describe_quorum as quorum
from odradek.protocol.messages.cluster import unregister_broker as unregister
from odradek.protocol.messages.cluster import update_features as features
from odradek.protocol.messages.cluster.add_raft_voter import AddRaftVoterRequest
from odradek.protocol.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest
from odradek.protocol.messages.cluster.unregister_controller import UnregisterControllerRequest
from odradek.protocol.messages.configs import describe_configs as describe
from odradek.protocol.messages.configs import incremental_alter_configs as incremental
from odradek.protocol.messages.configs import list_config_resources as resources
from odradek.protocol.messages.metadata import api_versions, find_coordinator, metadata
from odradek.protocol.messages.quotas import alter_client_quotas as quotas
from odradek.protocol.messages.quotas import describe_client_quotas
from odradek.protocol.messages.security import alter_user_scram_credentials as alter_scram
from odradek.protocol.messages.security import (
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
)
from odradek.protocol.messages.topics import alter_partition_reassignments as reassign
from odradek.protocol.messages.topics import elect_leaders as elect
from odradek.protocol.messages.topics import list_partition_reassignments as reassignments
from odradek.runtime.real import PosixDisk

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAABQ:0"


def election(*topics: tuple[str, list[int]], **options: int) -> Any:
    wanted = [elect.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    return elect.ElectLeadersRequest(topic_partitions=wanted, **options)


def reassignment(topic: str, index: int, replicas: list[int] | None) -> Any:
    partition = reassign.ReassignablePartition(partition_index=index, replicas=replicas)
    return reassign.AlterPartitionReassignmentsRequest(
        topics=[reassign.ReassignableTopic(name=topic, partitions=[partition])]
    )


def quorum_of(topic: str, index: int = 0) -> Any:
    return quorum.DescribeQuorumRequest(
        topics=[quorum.TopicData(topic_name=topic, partitions=[quorum.PartitionData(partition_index=index)])]
    )


def feature(name: str, level: int, **options: Any) -> Any:
    key = features.FeatureUpdateKey(feature=name, max_version_level=level, **options)
    return features.UpdateFeaturesRequest(feature_updates=[key])


ACL = create_acls.AclCreation(
    resource_type=2, resource_name="t", principal="User:u", host="*", operation=3, permission_type=3
)
REQUESTS: dict[str, tuple[Callable[[int], Any], set[int]]] = {
    "ElectLeaders": (lambda version: election(("t", [0])), {84}),
    "AlterPartitionReassignments": (lambda version: reassignment("t", 0, [1]), set()),
    "ListPartitionReassignments": (
        lambda version: reassignments.ListPartitionReassignmentsRequest(topics=None),
        set(),
    ),
    "DescribeQuorum": (lambda version: quorum_of("__cluster_metadata"), set()),
    "UpdateFeatures": (lambda version: feature("transaction.version", 2), set()),
    "ListConfigResources": (lambda version: resources.ListConfigResourcesRequest(), set()),
    "DescribeAcls": (
        lambda version: describe_acls.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        {54},
    ),
    "CreateAcls": (lambda version: create_acls.CreateAclsRequest(creations=[ACL]), {54}),
    "DeleteAcls": (
        lambda version: delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=None,
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        {54},
    ),
    "DescribeUserScramCredentials": (
        lambda version: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None),
        set(),
    ),
    "AlterUserScramCredentials": (
        lambda version: alter_scram.AlterUserScramCredentialsRequest(
            deletions=[alter_scram.ScramCredentialDeletion(name="u", mechanism=1)]
        ),
        {91},
    ),
    "CreateDelegationToken": (
        lambda version: create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=-1),
        {64},
    ),
    "RenewDelegationToken": (
        lambda version: renew_delegation_token.RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=-1),
        {64},
    ),
    "ExpireDelegationToken": (
        lambda version: expire_delegation_token.ExpireDelegationTokenRequest(
            hmac=b"h", expiry_time_period_ms=-1
        ),
        {64},
    ),
    "DescribeDelegationToken": (
        lambda version: describe_delegation_token.DescribeDelegationTokenRequest(owners=None),
        {64},
    ),
    "UnregisterBroker": (lambda version: unregister.UnregisterBrokerRequest(broker_id=9), {102}),
    "UnregisterController": (lambda version: UnregisterControllerRequest(controller_id=1), {136}),
    "AddRaftVoter": (lambda version: AddRaftVoterRequest(cluster_id=None, voter_id=1), {35}),
    "RemoveRaftVoter": (lambda version: RemoveRaftVoterRequest(cluster_id=None, voter_id=1), {35}),
    "DescribeClientQuotas": (lambda version: describe_client_quotas.DescribeClientQuotasRequest(), set()),
    "AlterClientQuotas": (
        lambda version: quotas.AlterClientQuotasRequest(
            entries=[
                quotas.EntryData(
                    entity=[quotas.EntityData(entity_type="user", entity_name="u")],
                    ops=[quotas.OpData(key="producer_byte_rate", value=1.0)],
                )
            ]
        ),
        set(),
    ),
}


def cases() -> Iterator[tuple[str, int]]:
    for name in REQUESTS:
        for version in APIS[api_by_name(name).key].versions:
            yield name, version


def error_codes(message: Any) -> set[int]:
    results: set[int] = set()
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name == "error_code":
            results.add(int(value))
        elif isinstance(value, list):
            results |= {
                code for element in value if hasattr(element, "FIELDS") for code in error_codes(element)
            }
    return results - {0}


@pytest.mark.parametrize(("name", "version"), list(cases()))
async def test_it_answers_in_every_version(wire: Any, name: str, version: int) -> None:
    await wire.create("t")
    request, codes = REQUESTS[name]
    assert error_codes(await wire.ask(request(version), version)) == codes


# -- elections and reassignments


async def test_no_election_is_needed_and_what_is_unknown_is_said(wire: Any) -> None:
    await wire.create("t", 2)
    response = await wire.ask(election(("t", [0, 1, 7]), ("none", [0])), 2)
    assert response.error_code == 0
    assert [
        [partition.error_code for partition in topic.partition_result]
        for topic in response.replica_election_results
    ] == [[84, 84, 3], [3]]
    everything = await wire.ask(elect.ElectLeadersRequest(topic_partitions=None), 2)
    assert [(topic.topic, topic.partition_result) for topic in everything.replica_election_results] == [
        ("t", [])
    ]
    unknown = await wire.ask(election(("t", [0]), election_type=5), 2)
    assert unknown.error_code == 42


@pytest.mark.parametrize(
    ("kind", "key", "topic", "setting"),
    [
        (0, "k", "__consumer_offsets", "offsets_topic_replication_factor"),
        (1, "k", "__transaction_state", "transaction_state_log_replication_factor"),
        (2, SHARE_KEY, "__share_group_state", "share_coordinator_state_topic_replication_factor"),
    ],
)
@pytest.mark.parametrize("given", [None, "3"])
async def test_a_coordinators_topic_is_made_with_the_replicas_that_there_can_be(
    scene: Any,
    caplog: pytest.LogCaptureFixture,
    kind: int,
    key: str,
    topic: str,
    setting: str,
    given: str | None,
) -> None:
    await scene.start(**({} if given is None else {setting: given}))
    wire = await scene.connect()
    asked = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    coordinator = (await wire.ask(asked, 6)).coordinators[0]
    assert (coordinator.error_code, coordinator.node_id) == (0, 1)
    named = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)])
    partitions = (await wire.ask(named, 12)).topics[0].partitions
    assert all(partition.replica_nodes == [1] for partition in partitions)
    assert ("internal_topic_has_fewer_replicas" in caplog.text) == (given is not None)


async def test_a_broker_that_runs_stays_registered(scene: Any) -> None:
    await scene.start(node_id="7")
    wire = await scene.connect()
    itself = unregister.UnregisterBrokerRequest(broker_id=7)
    response = await wire.ask(itself, 0)
    assert response.error_code == 42
    assert "is running" in response.error_message


def no_space(*_: Any) -> None:
    raise OSError(28, "no space left on device")


@pytest.mark.parametrize(("kind", "code"), [(0, 80), (1, 83)])
async def test_an_offline_partition_has_no_one_to_elect(
    scene: Any, monkeypatch: pytest.MonkeyPatch, kind: int, code: int
) -> None:
    await scene.start()
    wire = await scene.connect()
    with monkeypatch.context() as patch:
        patch.setattr(PosixDisk, "make_directory", no_space)
        await wire.create("t")
    for request in (election(("t", [0])), elect.ElectLeadersRequest(topic_partitions=None)):
        response = await wire.ask(request.replace(election_type=kind), 2)
        assert response.replica_election_results[0].partition_result[0].error_code == code


@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("t", 0, [1], 0),
        ("t", 0, [5], 39),
        ("t", 0, [], 39),
        ("t", 0, [1, 1], 39),
        ("t", 0, [-1], 39),
        ("t", 0, None, 85),
        ("t", 9, [1], 3),
        ("none", 0, [1], 3),
        ("none", 0, None, 3),
    ],
)
async def test_a_reassignment_is_to_this_broker_or_refused(
    wire: Any, topic: str, index: int, replicas: list[int] | None, code: int
) -> None:
    await wire.create("t")
    response = await wire.ask(reassignment(topic, index, replicas), 1)
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, code)


# -- quorum and features


async def test_the_controller_is_a_quorum_of_one(wire: Any) -> None:
    response = await wire.ask(quorum_of("__cluster_metadata"), 2)
    state = response.topics[0].partitions[0]
    assert (state.leader_id, [voter.replica_id for voter in state.current_voters], state.observers) == (
        1,
        [1],
        [],
    )
    assert state.high_watermark == state.current_voters[0].log_end_offset > 0
    assert [node.node_id for node in response.nodes] == [1]
    for request in (quorum_of("t"), quorum_of("__cluster_metadata", 1)):
        response = await wire.ask(request, 2)
        assert response.topics[0].partitions[0].error_code == 3


async def finalized(wire: Any) -> tuple[int, dict[str, int]]:
    request = api_versions.ApiVersionsRequest(client_software_name="c", client_software_version="1")
    response = await wire.ask(request, 4)
    return response.finalized_features_epoch, {
        finalized_feature.name: finalized_feature.max_version_level
        for finalized_feature in response.finalized_features
    }


async def test_levels_of_features_change_are_described_and_survive_a_restart(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    epoch, levels = await finalized(wire)
    assert levels["transaction.version"] == 2
    down = feature("transaction.version", 1, upgrade_type=2)
    assert (await wire.ask(down.replace(validate_only=True), 2)).error_code == 0
    assert await finalized(wire) == (epoch, levels)
    assert (await wire.ask(down, 2)).error_code == 0
    assert await finalized(wire) == (epoch + 1, {**levels, "transaction.version": 1})
    await scene.stop()
    await scene.start()
    wire = await scene.connect()
    assert await finalized(wire) == (epoch + 1, {**levels, "transaction.version": 1})
    assert (await wire.ask(feature("transaction.version", 2), 2)).error_code == 0
    assert await finalized(wire) == (epoch + 2, levels)


@pytest.mark.parametrize(
    ("name", "level", "options"),
    [
        ("nosuch", 1, {}),
        ("transaction.version", 3, {}),
        ("transaction.version", -1, {}),
        ("transaction.version", 1, {}),
        ("transaction.version", 2, {"upgrade_type": 9}),
        ("metadata.version", 29, {"upgrade_type": 2}),
    ],
)
async def test_a_level_that_cannot_be_is_refused(wire: Any, name: str, level: int, options: Any) -> None:
    before = await finalized(wire)
    for version in (1, 2):
        response = await wire.ask(feature(name, level, **options), version)
        assert response.error_code == 95
        assert name in response.error_message
    assert await finalized(wire) == before


async def test_the_levels_of_kafkas_release_can_be_set(wire: Any) -> None:
    """The request is that of `kafka-features upgrade --release-version 4.4`."""
    _, facts = recorded()
    levels = facts["release"]["4.4-IV2"]
    updates = [
        features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
        for name, level in levels.items()
    ]
    request = features.UpdateFeaturesRequest(timeout_ms=1000, feature_updates=updates)
    response = await wire.ask(request, 2)
    assert (response.error_code, response.error_message) == (0, None)
    assert (await finalized(wire))[1] == levels


async def test_the_only_voter_stays_whatever_the_level_of_kraft_version(wire: Any) -> None:
    for level, removed, added in ((0, 35, 35), (1, 127, 126)):
        assert level == 0 or (await wire.ask(feature("kraft.version", level), 2)).error_code == 0
        response = await wire.ask(RemoveRaftVoterRequest(cluster_id=None, voter_id=1), 0)
        assert (response.error_code, "voter" in response.error_message) == (removed, True)
        response = await wire.ask(AddRaftVoterRequest(cluster_id=None, voter_id=1), 1)
        assert (response.error_code, "voter" in response.error_message) == (added, True)
        response = await wire.ask(AddRaftVoterRequest(cluster_id=None, voter_id=2), 1)
        assert response.error_code == 35
    for version, request in ((0, RemoveRaftVoterRequest), (1, AddRaftVoterRequest)):
        response = await wire.ask(request(voter_id=1, cluster_id="another"), version)
        assert response.error_code == 104


async def test_the_oldest_clients_say_whether_a_level_may_go_down(wire: Any) -> None:
    for allowed, code in ((False, 95), (True, 0)):
        request = feature("transaction.version", 1, allow_downgrade=allowed)
        assert (await wire.ask(request, 0)).error_code == code


# -- settings of all kinds


async def alter(wire: Any, kind: int, name: str, *entries: Any, **options: Any) -> int:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in entries
    ]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], **options)
    code: int = (await wire.ask(request, 1)).responses[0].error_code
    return code


async def described(wire: Any, kind: int, name: str) -> dict[str, Any]:
    resource = describe.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = describe.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    entry = (await wire.ask(request, 4)).results[0]
    if entry.error_code:
        return {"error": entry.error_code}
    return {config.name: config for config in entry.configs}


async def listed(wire: Any, *kinds: int) -> set[tuple[int, str]]:
    request = resources.ListConfigResourcesRequest(resource_types=list(kinds))
    response = await wire.ask(request, 1)
    return {(resource.resource_type, resource.resource_name) for resource in response.config_resources}


async def test_a_brokers_own_settings_outrank_those_of_all_and_both_those_of_its_file(scene: Any) -> None:
    await scene.start(log_retention_ms="1000")
    wire = await scene.connect()
    key = "log.retention.ms"
    assert await alter(wire, BROKER, "", (key, SET, "2000")) == 0
    assert (await described(wire, BROKER, "1"))[key].value == "2000"
    assert await alter(wire, BROKER, "1", (key, SET, "3000")) == 0
    record = (await described(wire, BROKER, "1"))[key]
    assert (record.value, record.config_source) == ("3000", 2)
    assert [(s.name, s.value, s.source) for s in record.synonyms][:3] == [
        (key, "3000", 2),
        (key, "2000", 3),
        (key, "1000", 4),
    ]
    of_all = await described(wire, BROKER, "")
    assert {
        name: (entity_config.value, entity_config.config_source) for name, entity_config in of_all.items()
    } == {
        key: ("2000", 3),
        "min.insync.replicas": ("1", 3),
    }
    await scene.stop()
    await scene.start(log_retention_ms="1000")
    wire = await scene.connect()
    assert (await described(wire, BROKER, "1"))[key].value == "3000"
    assert await alter(wire, BROKER, "1", (key, DELETE, None)) == 0
    assert (await described(wire, BROKER, "1"))[key].value == "2000"


@pytest.mark.parametrize(
    ("name", "entry", "code"),
    [
        ("1", ("node.id", SET, "2"), 42),
        ("1", ("num.partitions", SET, "2"), 42),
        ("", ("log.retention.ms", SET, "abc"), 42),
        ("7", ("log.retention.ms", SET, "1"), 42),
        ("x", ("log.retention.ms", SET, "1"), 42),
        ("1", ("log.retention.ms", APPEND, "1"), 40),
        ("", ("log.cleanup.policy", APPEND, "compact"), 0),
        ("", ("max.connections", SET, "50"), 0),
        ("", ("num.io.threads", SET, "50"), 0),
        ("1", ("listeners", SET, "PLAINTEXT://:9"), 0),
        ("1", ("sasl.kerberos.service.name", SET, "kafka"), 0),
    ],
)
async def test_dynamic_settings_of_brokers_are_checked(wire: Any, name: str, entry: Any, code: int) -> None:
    assert await alter(wire, BROKER, name, entry) == code


async def test_a_groups_default_follows_its_brokers_dynamic_setting(wire: Any) -> None:
    key = "share.assignment.interval.ms"
    assert await alter(wire, BROKER, "", (f"group.{key}", SET, "7")) == 0
    record = (await described(wire, GROUP, "g"))[key]
    assert (record.value, record.config_source) == ("7", 3)


async def test_every_setting_has_a_type_and_a_meaning(wire: Any) -> None:
    await wire.create("t")
    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (GROUP, "g"), (METRICS, "m")):
        for entity_config in (await described(wire, kind, name)).values():
            assert entity_config.config_type > 0
            assert entity_config.documentation


async def test_a_groups_settings_are_kept_described_and_listed(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    key = "consumer.session.timeout.ms"
    before = await described(wire, GROUP, "g")
    assert (before[key].value, before[key].config_source) == ("45000", 5)
    assert await listed(wire, GROUP) == set()
    assert await alter(wire, GROUP, "g", (key, SET, "50000")) == 0
    await scene.stop()
    await scene.start()
    wire = await scene.connect()
    record = (await described(wire, GROUP, "g"))[key]
    assert (record.value, record.config_source) == ("50000", 8)
    assert [(s.name, s.value) for s in record.synonyms] == [(key, "50000"), (f"group.{key}", "45000")]
    assert await listed(wire, GROUP) == {(GROUP, "g")}
    assert await alter(wire, GROUP, "g", (key, DELETE, None)) == 0
    assert await listed(wire, GROUP) == set()


@pytest.mark.parametrize(
    ("name", "entry", "code"),
    [
        ("", ("consumer.session.timeout.ms", SET, "50000"), 42),
        ("g", ("consumer.session.timeout.ms", SET, "1"), 40),
        ("g", ("consumer.session.timeout.ms", SET, "99999999"), 40),
        ("g", ("consumer.session.timeout.ms", SET, "abc"), 40),
        ("g", ("consumer.heartbeat.interval.ms", SET, "49999999"), 40),
        ("g", ("share.isolation.level", SET, "x"), 40),
        ("g", ("share.isolation.level", APPEND, "x"), 40),
        ("g", ("share.auto.offset.reset", SET, "by_duration:P1D"), 0),
        ("g", ("nosuch", SET, "1"), 40),
        ("g", ("nosuch", DELETE, None), 0),
    ],
)
async def test_settings_of_groups_are_checked(wire: Any, name: str, entry: Any, code: int) -> None:
    assert await alter(wire, GROUP, name, entry) == code


async def test_subscriptions_to_metrics_are_kept_and_checked(wire: Any) -> None:
    assert await alter(wire, METRICS, "m", ("metrics", SET, "a,b"), ("match", SET, "client_id=x")) == 0
    assert (await described(wire, METRICS, "m"))["metrics"].config_source == 7
    assert (await described(wire, METRICS, "other"))["interval.ms"].value == "300000"
    assert await listed(wire, METRICS) == {(METRICS, "m")}
    old = await wire.ask(resources.ListConfigResourcesRequest(), 0)
    assert [resource.resource_name for resource in old.config_resources] == ["m"]
    for name, entry, code in (
        ("", ("metrics", SET, "a"), 42),
        ("m", ("interval.ms", SET, "5"), 42),
        ("m", ("match", SET, "shoe_size=5"), 40),
        ("m", ("nosuch", SET, "5"), 42),
    ):
        assert await alter(wire, METRICS, name, entry) == code


async def test_levels_of_loggers_are_set_and_given_back(wire: Any) -> None:
    assert (await described(wire, LOGGER, "1"))["odradek.net"].config_source == 6
    try:
        entry = ("odradek.net", SET, "FATAL")
        assert await alter(wire, LOGGER, "1", entry, validate_only=True) == 0
        assert logging.getLogger("odradek.net").level == logging.NOTSET
        assert await alter(wire, LOGGER, "1", entry) == 0
        assert (await described(wire, LOGGER, "1"))["odradek.net"].value == "FATAL"
        assert await alter(wire, LOGGER, "1", ("odradek.net", DELETE, None)) == 0
    finally:
        level, logging.getLogger("odradek.net").level = logging.getLogger("odradek.net").level, logging.NOTSET
    assert level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "entry", "code"),
    [
        ("1", ("odradek.net", SET, "LOUD"), 40),
        ("1", ("nosuch", SET, "INFO"), 40),
        ("1", ("odradek.net", APPEND, "INFO"), 42),
        ("1", ("root", DELETE, None), 42),
        ("7", ("odradek.net", SET, "INFO"), 42),
        ("", ("odradek.net", SET, "INFO"), 42),
    ],
)
async def test_levels_that_cannot_be_are_refused(wire: Any, name: str, entry: Any, code: int) -> None:
    assert await alter(wire, LOGGER, name, entry) == code


@pytest.mark.parametrize("kind", [0, 1, 77])
async def test_a_kind_of_resource_that_does_not_exist_is_refused(wire: Any, kind: int) -> None:
    assert await alter(wire, kind, "x") == 42
    assert await described(wire, kind, "x") == {"error": 42}
    request = resources.ListConfigResourcesRequest(resource_types=[kind])
    assert (await wire.ask(request, 1)).error_code == 35


async def test_names_that_cannot_be_are_refused(wire: Any) -> None:
    for kind, name in ((GROUP, ""), (METRICS, ""), (LOGGER, "7"), (LOGGER, ""), (BROKER, "7"), (BROKER, "x")):
        assert await described(wire, kind, name) == {"error": 42}


async def test_everything_with_settings_is_listed(wire: Any) -> None:
    await wire.create("t")
    assert await listed(wire) == {(LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")}


# -- credentials


async def test_users_have_credentials_once_they_are_given_some(wire: Any) -> None:
    names = [describe_user_scram_credentials.UserName(name=name) for name in ("a", "b", "b")]
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=names)
    response = await wire.ask(request, 0)
    assert {entry.user: entry.error_code for entry in response.results} == {"a": 91, "b": 92}
    added = alter_scram.ScramCredentialUpsertion(
        name="u", mechanism=1, iterations=8192, salt=b"s", salted_password=b"p"
    )
    request = alter_scram.AlterUserScramCredentialsRequest(upsertions=[added])
    response = await wire.ask(request, 0)
    assert [(user.user, user.error_code) for user in response.results] == [("u", 0)]
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
    response = await wire.ask(request, 0)
    [described_user] = response.results
    assert [(info.mechanism, info.iterations) for info in described_user.credential_infos] == [(1, 8192)]
