"""What the controller does unasked: replicas of dead brokers are made again, preferred leaders lead again, cordons are kept."""

from dataclasses import replace
from typing import Any

import pytest

from odradek.cluster.availability import Liveness
from odradek.cluster.controller.maintenance import HealingPlan, Maintenance, MaintenancePolicy, policy_of
from odradek.cluster.documents import RESOURCE_CONFIGS
from odradek.cluster.healing import healing_to_cancel, preferred_leaders_to_restore, replicas_to_heal
from odradek.cluster.image import NO_LEADER
from odradek.cluster.reassignment import Reassignment
from odradek.config.broker import BrokerConfig
from odradek.config.cluster import ControllerConfig
from odradek.model.ids import BrokerId

POLICY = MaintenancePolicy(healing_delay_s=60)


@pytest.fixture
async def four(cluster: Any) -> Any:
    await cluster.start(4, racks=["a", "a", "b", "b"])
    return cluster


def maintenance_of(cluster: Any) -> Any:
    """The controller's clockwork, to be turned by hand."""
    controller = cluster.controller
    return Maintenance(
        controller.changes,
        controller.brokers,
        lambda: controller.partition_changes,
        cluster.clock,
        MaintenancePolicy,
    )


async def test_replicas_of_a_broker_that_stays_dead_are_made_again_elsewhere(four: Any) -> None:
    await four.topic("t", partitions=4, replicas=2)
    await four.kill(4)
    maintenance = maintenance_of(four)
    policy = MaintenancePolicy(healing_delay_s=60)
    four.clock.now += 59
    await maintenance.heal(policy)
    topic = four.controller.latest.topics["t"]
    assert not any(partition.adding for partition in topic.partitions)
    four.clock.now += 2
    await maintenance.heal(policy)
    for before, now in zip(topic.partitions, four.controller.latest.topics["t"].partitions, strict=True):
        assert bool(now.adding) == (4 in before.replicas)
        assert set(now.removing) == {4} & set(before.replicas)
        racks = {four.brokers[replica].rack for replica in now.replicas if replica not in now.removing}
        assert racks == {"a", "b"}


async def test_a_broker_that_comes_back_in_time_is_left_alone(four: Any) -> None:
    await four.topic("t", partitions=4, replicas=2)
    await four.kill(4)
    four.clock.now += 59
    await four.controller.brokers_changed()
    await four.revive(4)
    await four.controller.brokers_changed()
    four.clock.now += 2
    before = four.controller.latest
    await maintenance_of(four).heal(MaintenancePolicy(healing_delay_s=60))
    assert four.controller.latest is before


async def begun_healing(four: Any) -> Any:
    """Broker 4 has been dead for too long; returns the clockwork that has begun to heal."""
    await four.topic("t", partitions=4, replicas=2)
    await four.kill(4)
    four.clock.now += 61
    maintenance = maintenance_of(four)
    await maintenance.heal(POLICY)
    assert any(partition.adding for partition in four.controller.latest.topics["t"].partitions)
    return maintenance


async def test_healing_is_given_up_when_the_broker_comes_back(four: Any) -> None:
    maintenance = await begun_healing(four)
    await four.revive(4)
    await four.controller.brokers_changed()
    await maintenance.heal(POLICY)
    for partition in four.controller.latest.topics["t"].partitions:
        assert not partition.adding
        assert not partition.removing
        assert len(partition.replicas) == 2
    assert any(4 in partition.replicas for partition in four.controller.latest.topics["t"].partitions)
    before = four.controller.latest
    await maintenance.heal(POLICY)
    assert four.controller.latest is before


async def test_healing_goes_on_where_the_new_copy_is_in_sync_already(four: Any) -> None:
    maintenance = await begun_healing(four)
    await four.all_ask()
    topic = four.controller.latest.topics["t"]
    index = next(index for index, partition_state in enumerate(topic.partitions) if partition_state.adding)
    partition = topic.partitions[index]
    await four.revive(4)
    await four.all_ask()
    image = four.controller.latest
    in_sync = replace(partition, isr=(*partition.isr, *partition.adding))
    changed = tuple(
        in_sync if number == index else partition_data
        for number, partition_data in enumerate(topic.partitions)
    )
    moves = healing_to_cancel(image.with_topics([replace(topic, partitions=changed)]), maintenance.healing)
    assert index not in {move.partition for move in moves}
    assert index in {move.partition for move in healing_to_cancel(image, maintenance.healing)}


async def test_a_move_that_someone_changed_is_not_given_up(four: Any) -> None:
    maintenance = await begun_healing(four)
    topic = four.controller.latest.topics["t"]
    index = next(index for index, partition in enumerate(topic.partitions) if partition.adding)
    (kept,) = set(topic.partitions[index].replicas) - {*topic.partitions[index].adding, 4}
    [other] = {1, 2, 3} - {kept, *topic.partitions[index].adding}
    target = (kept, BrokerId(other))
    assert await four.controller.reassign([Reassignment(topic="t", partition=index, replicas=target)]) == [
        None
    ]
    await four.revive(4)
    await four.controller.brokers_changed()
    await maintenance.heal(POLICY)
    assert set(four.controller.latest.topics["t"].partitions[index].adding) == {other}


async def test_so_many_partitions_are_healed_at_a_time(four: Any) -> None:
    await four.topic("t", partitions=12, replicas=2)
    await four.kill(4)
    image = four.controller.latest
    moves = replicas_to_heal(image, {BrokerId(4)}, partitions_max=2)
    assert len(moves) == 2
    await four.controller.reassign(moves)
    assert replicas_to_heal(four.controller.latest, {BrokerId(4)}, partitions_max=2) == []


async def test_no_copy_goes_to_a_broker_whose_disks_are_full(four: Any) -> None:
    await four.topic("t", partitions=12, replicas=2)
    await four.kill(4)
    image = four.controller.latest
    moves = replicas_to_heal(image, {BrokerId(4)}, full={BrokerId(3)}, partitions_max=12)
    assert moves
    for move in moves:
        before = image.topics["t"].partitions[move.partition].replicas
        assert 3 not in {*(move.replicas or ())} - {*before}


async def test_a_partition_that_no_one_leads_cannot_be_copied(four: Any) -> None:
    await four.topic("t", partitions=4, replicas=1)
    await four.kill(4)
    image = four.controller.latest
    assert any(partition.leader == NO_LEADER for partition in image.topics["t"].partitions)
    assert replicas_to_heal(image, {BrokerId(4)}, partitions_max=9) == []


async def test_a_replica_for_which_there_is_no_other_broker_stays(cluster: Any) -> None:
    await cluster.start(3)
    await cluster.topic("t")
    await cluster.kill(3)
    assert replicas_to_heal(cluster.controller.latest, {BrokerId(3)}, partitions_max=9) == []


async def test_leadership_goes_back_when_a_broker_lacks_too_much_of_it(cluster: Any) -> None:
    await cluster.start(3)
    await cluster.topic("t", partitions=6, replicas=3)
    preferred = [partition.leader for partition in cluster.controller.latest.topics["t"].partitions]
    await cluster.kill(3)
    await cluster.revive(3)
    policy = MaintenancePolicy(imbalance_percentage=10)
    maintenance = maintenance_of(cluster)
    await maintenance.restore_preferred_leaders(policy)
    assert 3 not in [partition.leader for partition in cluster.controller.latest.topics["t"].partitions]
    for broker in cluster.brokers.values():
        await broker.ask()
    for index, partition in enumerate(cluster.controller.latest.topics["t"].partitions):
        await cluster.brokers[partition.leader].propose("t", index, [*partition.isr, 3])
    await maintenance.restore_preferred_leaders(MaintenancePolicy(rebalances_leaders=False))
    assert 3 not in [partition.leader for partition in cluster.controller.latest.topics["t"].partitions]
    await maintenance.restore_preferred_leaders(policy)
    assert [partition.leader for partition in cluster.controller.latest.topics["t"].partitions] == preferred


async def test_a_small_imbalance_is_left_alone(cluster: Any) -> None:
    await cluster.start(2)
    await cluster.topic("t", partitions=20, replicas=2)
    moved = next(
        index
        for index, partition in enumerate(cluster.controller.latest.topics["t"].partitions)
        if partition.leader == 1
    )
    replicas = cluster.partition("t", moved).replicas
    turned = Reassignment(topic="t", partition=moved, replicas=tuple(reversed(replicas)))
    assert await cluster.controller.reassign([turned]) == [None]
    image = cluster.controller.latest
    availability = Liveness(brokers={broker.broker_id: broker for broker in image.brokers}).standing_for
    assert preferred_leaders_to_restore(image, availability, percentage=10) == []
    assert [name.partition for name in preferred_leaders_to_restore(image, availability, percentage=5)] == [
        moved
    ]


async def test_a_cordoned_broker_gets_no_replicas_until_it_is_let_go(cluster: Any) -> None:
    await cluster.start(3)
    setting = {(4, "3"): {"odradek.broker.cordoned": "true"}}
    await cluster.controller.alter(RESOURCE_CONFIGS, lambda before: before.with_changes(setting))
    topic = await cluster.topic("t", partitions=6, replicas=2)
    assert not any(3 in partition.replicas for partition in topic.partitions)
    await cluster.controller.alter(
        RESOURCE_CONFIGS, lambda before: before.with_changes(dict.fromkeys(setting))
    )
    topic = await cluster.topic("u", partitions=6, replicas=2)
    assert any(3 in partition.replicas for partition in topic.partitions)


def test_the_policy_is_what_the_settings_say() -> None:
    assert policy_of(BrokerConfig()) == MaintenancePolicy()
    assert (
        policy_of(BrokerConfig(controller=ControllerConfig(odradek_healing_delay_ms=-1))).healing_delay_s
        is None
    )


async def test_the_plan_says_when_the_replicas_of_a_dead_broker_are_made_again(four: Any) -> None:
    maintenance = maintenance_of(four)
    assert maintenance.plan() == HealingPlan({}, 0)
    await four.topic("t", partitions=4, replicas=2)
    await four.kill(4)
    four.clock.now += 59
    assert maintenance.plan() == HealingPlan({4: MaintenancePolicy().healing_delay_s - 59}, 0)
    four.clock.now += 10_000
    await maintenance.heal(MaintenancePolicy())
    plan = maintenance.plan()
    assert plan.due_s == {4: 0.0}
    topic = four.controller.latest.topics["t"]
    assert plan.partition_count == sum(bool(partition.adding) for partition in topic.partitions) > 0
