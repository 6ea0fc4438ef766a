"""The controller's decisions: what is created, grown, altered and deleted, and what is refused with which code."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from odradek.cluster.controller.controller import Controller
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.cluster.planning import ClusterDefaults, MorePartitions, TopicSpec
from odradek.cluster.registration import Registration, register
from odradek.cluster.sync import BrokerReport
from odradek.config.broker import BrokerConfig
from odradek.config.topic import topic_config
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import Check, Create, EmbeddedRegistry, Put, RegistryError
from odradek.registry.election import CONTROLLER_EPOCH, Term
from odradek.runtime.descriptors import UNLIMITED, DescriptorBudget
from odradek.runtime.real import real_runtime


class World:
    """A controller on a registry in a directory, and the images that it published."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runtime = real_runtime()
        self.published: list[ClusterImage] = []
        self.applied = asyncio.Event()
        self.applying = asyncio.Event()
        self.applying.set()

    async def start(
        self, *, partition_count_max: int = 100, descriptors: DescriptorBudget = UNLIMITED
    ) -> Controller:
        async def apply(before: ClusterImage, after: ClusterImage) -> None:
            self.applied.set()
            await self.applying.wait()
            self.published.append(after)

        def check(configs: Mapping[str, str]) -> None:
            topic_config(configs, BrokerConfig())

        self.registry = EmbeddedRegistry.open(self.runtime, str(self.directory))
        broker_id = BrokerId(1)
        me = Registration(broker_id=broker_id, directory_id="d", host="", port=0)
        epoch = await register(self.registry, me)
        controller = await Controller.load(
            self.registry,
            self.runtime.entropy,
            ClusterDefaults(
                partition_count=3,
                replication_factor=1,
                check_configs=check,
                partition_count_max=partition_count_max,
                descriptors=descriptors,
            ),
            cluster_id="c",
            broker_id=broker_id,
            apply=apply,
            term=await self.term(),
            clock=self.runtime.clock,
        )
        await controller.begin()
        await controller.sync(BrokerReport(broker_id=broker_id, broker_epoch=epoch), max_wait_s=0.01)
        self.applied.clear()
        self.published.clear()
        return controller

    async def term(self) -> Term:
        node = await self.registry.get(CONTROLLER_EPOCH)
        number, version = (1, 0) if node is None else (int(node.data) + 1, node.version + 1)
        data = b"%d" % number
        await self.registry.commit(
            [
                Create(path=CONTROLLER_EPOCH, data=data)
                if node is None
                else Put(path=CONTROLLER_EPOCH, data=data, version=node.version)
            ]
        )
        return Term(epoch=number, check=Check(path=CONTROLLER_EPOCH, version=version))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def succeeded(outcome: TopicImage | KafkaError) -> TopicImage:
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


async def delete(controller: Controller, name: str, topic_id: UUID | None = None) -> TopicImage:
    (outcome,) = await controller.delete_topics([(name, topic_id)])
    return succeeded(outcome)


async def grow(controller: Controller, more: MorePartitions) -> TopicImage:
    (outcome,) = await controller.create_partitions([more])
    return succeeded(outcome)


async def created(controller: Controller, topic: TopicSpec) -> TopicImage:
    outcome = (await controller.create_topics([topic]))[0]
    assert isinstance(outcome, TopicImage)
    return outcome


async def refusal(controller: Controller, topic: TopicSpec) -> ErrorCode:
    outcome = (await controller.create_topics([topic]))[0]
    assert isinstance(outcome, KafkaError)
    return outcome.code


async def test_a_topic_gets_the_defaults_and_survives_a_restart(world: World) -> None:
    controller = await world.start()
    topic = await created(controller, TopicSpec(name="flights", configs={"retention.ms": "1000"}))
    assert len(topic.partitions) == 3
    assert topic.partitions[0].replicas == (1,)
    await world.registry.close()
    again = (await world.start()).image.topics["flights"]
    assert (again.topic_id, again.configs) == (topic.topic_id, topic.configs)
    assert [partition.replicas for partition in again.partitions] == [
        partition.replicas for partition in topic.partitions
    ]
    assert all(partition.leader == 1 for partition in again.partitions)


async def test_what_the_brokers_have_no_descriptors_for_is_refused_and_the_answer_says_so(
    world: World,
) -> None:
    controller = await world.start(descriptors=replace(UNLIMITED, limit=256, writers=1))
    await created(controller, TopicSpec(name="eight", partition_count=8))
    first, second = await controller.create_topics(
        [TopicSpec(name="a", partition_count=1), TopicSpec(name="b", partition_count=2)], validate_only=True
    )
    for refused in (first, second):
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.POLICY_VIOLATION
        assert "limit of open files (256 each)" in refused.message
    with pytest.raises(KafkaError, match="limit of open files"):
        await grow(controller, MorePartitions(name="eight", total=9))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (TopicSpec(name="t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (TopicSpec(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec(name="under.score"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec(name="n", partition_count=0), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec(name="n", partition_count=101), ErrorCode.POLICY_VIOLATION),
        (TopicSpec(name="n", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec(name="n", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec(name="n", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec(name="n", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec(name="n", assignment={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec(name="n", assignment={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec(name="n", assignment={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec(name="n", assignment={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec(name="n", assignment={0: [1]}, partition_count=1), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_created_is_refused_with_kafkas_code(
    world: World, topic: TopicSpec, code: ErrorCode
) -> None:
    controller = await world.start()
    await created(controller, TopicSpec(name="t"))
    await created(controller, TopicSpec(name="under_score"))
    published = len(world.published)
    assert await refusal(controller, topic) is code
    assert len(world.published) == published


async def test_one_bad_topic_does_not_stop_the_others(world: World) -> None:
    controller = await world.start()
    outcomes = await controller.create_topics([TopicSpec(name="a"), TopicSpec(name="!"), TopicSpec(name="b")])
    assert [isinstance(outcome, TopicImage) for outcome in outcomes] == [True, False, True]
    assert sorted(controller.image.topics) == ["a", "b"]


async def test_validation_only_changes_nothing(world: World) -> None:
    controller = await world.start()
    await controller.create_topics([TopicSpec(name="a")], validate_only=True)
    assert controller.image.topics == {}


async def test_a_topic_that_is_deleted_and_made_again_has_another_id(world: World) -> None:
    controller = await world.start()
    first = await created(controller, TopicSpec(name="t"))
    await delete(controller, "t")
    assert first.topic_id not in controller.image.topics_by_id
    assert (await created(controller, TopicSpec(name="t"))).topic_id != first.topic_id


async def test_a_topic_only_grows(world: World) -> None:
    controller = await world.start()
    await created(controller, TopicSpec(name="t", partition_count=2))
    grown = await grow(controller, MorePartitions(name="t", total=5))
    assert len(grown.partitions) == 5
    with pytest.raises(KafkaError) as refused:
        await grow(controller, MorePartitions(name="t", total=5))
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    with pytest.raises(KafkaError) as refused:
        await grow(controller, MorePartitions(name="t", total=6, assignment=[[1], [1]]))
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(KafkaError) as refused:
        await grow(controller, MorePartitions(name="none", total=6))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_settings_are_checked_before_they_replace_the_old_ones(world: World) -> None:
    controller = await world.start()
    await created(controller, TopicSpec(name="t"))
    await controller.alter_topic_configs("t", lambda before: {**before, "retention.ms": "5"})
    with pytest.raises(KafkaError) as refused:
        await controller.alter_topic_configs("t", lambda before: {"retention.ms": "-9"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert controller.image.topics["t"].configs == {"retention.ms": "5"}


async def test_producer_ids_are_never_given_twice_across_restarts(world: World) -> None:
    controller = await world.start()
    first = await controller.allocate_producer_ids()
    await world.registry.close()
    second = await (await world.start()).allocate_producer_ids()
    assert not set(first) & set(second)


async def test_a_change_whose_asker_goes_away_is_still_applied(world: World) -> None:
    controller = await world.start()
    world.applying.clear()
    asking = asyncio.ensure_future(controller.create_topics([TopicSpec(name="t")]))
    await world.applied.wait()
    asking.cancel()
    world.applying.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await delete(controller, "t")
    assert [sorted(image.topics) for image in world.published] == [["t"], []]


async def test_a_topic_is_shown_only_once_it_can_be_used(world: World) -> None:
    controller = await world.start()
    world.applying.clear()
    asking = asyncio.ensure_future(controller.create_topics([TopicSpec(name="t")]))
    await world.applied.wait()
    assert "t" not in controller.image.topics
    world.applying.set()
    await asking
    assert "t" in controller.image.topics


async def test_many_who_ask_for_the_same_topic_at_once_get_it_once(world: World) -> None:
    controller = await world.start()
    outcomes = await asyncio.gather(*(controller.create_topics([TopicSpec(name="t")]) for _ in range(50)))
    made = [outcome for [outcome] in outcomes if isinstance(outcome, TopicImage)]
    refused = [outcome_of.code for [outcome_of] in outcomes if isinstance(outcome_of, KafkaError)]
    assert len(made) == 1
    assert refused == [ErrorCode.TOPIC_ALREADY_EXISTS] * 49
    assert len(world.published) == 1


async def test_a_registry_that_cannot_write_refuses_each_change_with_a_code(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = await world.start()
    await created(controller, TopicSpec(name="t"))

    async def full(operations: object) -> None:
        raise RegistryError("no space")

    monkeypatch.setattr(world.registry, "commit", full)
    code = ErrorCode.KAFKA_STORAGE_ERROR
    outcomes = await controller.create_topics([TopicSpec(name="a"), TopicSpec(name="bad name")])
    assert [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)] == [
        code,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    for change in (
        lambda: delete(controller, "t"),
        lambda: grow(controller, MorePartitions(name="t", total=9)),
        lambda: controller.alter_topic_configs("t", lambda _: {"retention.ms": "1"}),
        lambda: controller.alter_broker_configs(lambda _: {"message.max.bytes": "1"}),
        controller.allocate_producer_ids,
    ):
        with pytest.raises(KafkaError) as caught:
            await change()
        assert caught.value.code == code
    assert sorted(controller.image.topics) == ["t"]


async def test_deleting_by_id_leaves_a_newer_topic_of_the_name_alone(world: World) -> None:
    controller = await world.start()
    old = await created(controller, TopicSpec(name="t"))
    await delete(controller, "t")
    new = await created(controller, TopicSpec(name="t"))
    with pytest.raises(KafkaError) as caught:
        await delete(controller, "t", topic_id=old.topic_id)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await delete(controller, "t", topic_id=new.topic_id)).topic_id == new.topic_id


async def test_a_closed_controller_finishes_what_it_began_and_begins_nothing(world: World) -> None:
    controller = await world.start()
    world.applying.clear()
    asking = asyncio.ensure_future(controller.create_topics([TopicSpec(name="t")]))
    await world.applied.wait()
    closing = asyncio.ensure_future(controller.close())
    await asyncio.sleep(0)
    assert not closing.done()
    world.applying.set()
    await closing
    assert isinstance((await asking)[0], TopicImage)
    with pytest.raises(KafkaError) as caught:
        await delete(controller, "t")
    assert caught.value.code == ErrorCode.NOT_CONTROLLER


async def test_names_that_collide_within_one_request_are_refused(world: World) -> None:
    controller = await world.start()
    outcomes = await controller.create_topics([TopicSpec(name=name) for name in ("a.b", "a_b", "a.b")])
    codes = [outcome.code if isinstance(outcome, KafkaError) else None for outcome in outcomes]
    assert codes == [None, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_the_limit_of_partitions_counts_those_of_the_same_request(world: World) -> None:
    controller = await world.start()
    wanted = [TopicSpec(name=f"t{number}", partition_count=60) for number in range(2)]
    first, second = await controller.create_topics(wanted)
    assert isinstance(first, TopicImage)
    assert isinstance(second, KafkaError)
    assert second.code == ErrorCode.POLICY_VIOLATION


async def test_one_request_adds_no_more_partitions_than_kafka_lets_it(world: World) -> None:
    controller = await world.start(partition_count_max=200_000)
    wanted = [TopicSpec(name=f"t{number}", partition_count=4_000) for number in range(3)]
    outcomes = await controller.create_topics([*wanted, TopicSpec(name="small")], validate_only=True)
    codes = [outcome.code if isinstance(outcome, KafkaError) else None for outcome in outcomes]
    assert codes == [None, None, ErrorCode.POLICY_VIOLATION, None]
    await created(controller, TopicSpec(name="t"))
    with pytest.raises(KafkaError) as caught:
        await grow(controller, MorePartitions(name="t", total=10_004))
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


async def test_topics_grow_together_in_one_commit_each_with_an_outcome_of_its_own(world: World) -> None:
    controller = await world.start()
    for name in ("a", "b", "c"):
        await created(controller, TopicSpec(name=name, partition_count=2))
    world.published.clear()
    wanted = [
        MorePartitions(name=name, total=total) for name, total in (("a", 4), ("none", 9), ("b", 1), ("c", 3))
    ]
    a, none, b, c = await controller.create_partitions(wanted)
    assert [len(succeeded(outcome).partitions) for outcome in (a, c)] == [4, 3]
    assert isinstance(none, KafkaError)
    assert isinstance(b, KafkaError)
    assert (none.code, b.code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PARTITIONS)
    (published,) = world.published
    assert {name: len(topic.partitions) for name, topic in published.topics.items()} == {
        "a": 4,
        "b": 2,
        "c": 3,
    }


async def test_the_limit_of_added_partitions_counts_all_topics_that_grow_together(world: World) -> None:
    controller = await world.start(partition_count_max=100)
    for name in ("a", "b"):
        await created(controller, TopicSpec(name=name, partition_count=1))
    first, second = await controller.create_partitions(
        [MorePartitions(name=name, total=60) for name in ("a", "b")]
    )
    assert len(succeeded(first).partitions) == 60
    assert isinstance(second, KafkaError)
    assert second.code == ErrorCode.POLICY_VIOLATION


async def test_growth_that_is_only_checked_changes_nothing(world: World) -> None:
    controller = await world.start()
    await created(controller, TopicSpec(name="a", partition_count=1))
    (grown,) = await controller.create_partitions([MorePartitions(name="a", total=3)], validate_only=True)
    assert len(succeeded(grown).partitions) == 3
    assert len(controller.image.topics["a"].partitions) == 1


async def test_topics_are_deleted_together_in_one_commit_each_with_an_outcome_of_its_own(
    world: World,
) -> None:
    controller = await world.start()
    a = await created(controller, TopicSpec(name="a"))
    b = await created(controller, TopicSpec(name="b"))
    world.published.clear()
    outcomes = await controller.delete_topics([("a", a.topic_id), ("none", None), ("b", a.topic_id)])
    assert succeeded(outcomes[0]) is a
    assert [outcome.code for outcome in outcomes[1:] if isinstance(outcome, KafkaError)] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert [list(image.topics) for image in world.published] == [["b"]]
    assert controller.image.topics["b"].topic_id == b.topic_id
