"""Elects leaders, and decides who stays in sync, when brokers come and go. Pure functions from a partition to the next.

The rules, in order of weight:

1. Only a member of the ISR leads. While none of it is alive, no broker leads, and the ISR stays as it was: each of its members
   has everything that was acknowledged, and the first that is back leads.
2. A member that dies or leaves is taken out while another one remains, so that acknowledgements do not wait for it. If fewer
   than min.insync.replicas remain, it stays *eligible* (KIP-966): the high watermark does not move until there are enough
   again, so it has everything below it, and may lead when no one of the ISR is left.
3. Only where the topic opted in, and no one that has everything is alive, any replica may lead rather than
   none; likewise if an operator orders it. What it lacks is lost, and the partition is marked as recovering
   (KIP-704) while it leads. A replica that is known to have lost something comes after all that are not, and
   one that is offline for it comes last.
4. The leader stays while it may; otherwise the first replica that may lead does, in the order of the assignment.
5. A replica of which it is unknown whether it has everything leaves the ISR like one that lost something, while another member
   is left, alive or not. If the last member is such a replica, too, the longest log of all of them leads: no one has more.
6. A move to other replicas ends as soon as all of the target are in sync and one of them may lead, whichever came last: the ISR
   grew, or a broker is in service again.
7. A replica on a full disk leaves the ISR, and leads no longer, while another member can write. So does one
   on a slow disk that needs relief, but it leaves the ISR only if the others are as many as
   min.insync.replicas. Where no other is better, the slow one leads rather than the full one, and the full
   one rather than none: what it has can be read.

Each election has a leader epoch of its own; each change raises the partition epoch.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.cluster.availability import ReplicaAvailability, TopicRules
from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.model.ids import BrokerId, LeaderEpoch


def settled(
    partition: PartitionImage, availability: ReplicaAvailability, rules: TopicRules
) -> PartitionImage:
    """Returns the partition after an election with the present brokers; the same object when nothing changes."""
    availability = _as_disks_allow(partition, availability, rules)
    if partition.leader in availability.staying - availability.relieved and availability.staying.issuperset(
        partition.isr
    ):
        return completed(partition, availability)
    draft = _with_isr(partition, _in_sync(partition, availability), rules)
    return completed(renewed(partition, _with_leader(draft, availability, rules)), availability)


def completed(partition: PartitionImage, availability: ReplicaAvailability) -> PartitionImage:
    """Returns the partition without the replicas to remove, if all others are in sync and one of them can lead; else the same
    object."""
    if not partition.is_reassigned:
        return partition
    target = partition.target
    if not set(target).issubset(partition.isr):
        return partition
    draft = replace(
        partition,
        replicas=target,
        isr=tuple(broker_id for broker_id in partition.isr if broker_id in target),
        eligible=(),
        adding=(),
        removing=(),
    )
    if draft.leader not in target:
        candidate = _first(target, availability.electable | availability.slow)
        if candidate == NO_LEADER:
            return partition
        draft = _led(draft, candidate)
    return renewed(partition, draft)


def without_damaged(
    partition: PartitionImage, broker: BrokerId, availability: ReplicaAvailability, rules: TopicRules
) -> PartitionImage:
    """Returns the partition without a replica that lost committed records, unless no other has them. It must not be eligible
    either.

    Always in a new leader epoch: what its leader knows of it, and what is under way to it, is from before the loss. A
    replica is cut only under an epoch in which it did not fetch yet.
    """
    if broker not in partition.replicas:
        return partition
    others = tuple(broker_id for broker_id in partition.isr if broker_id != broker)
    eligible = tuple(broker_id for broker_id in partition.eligible if broker_id != broker)
    if broker not in partition.isr:
        return _with_new_leader(partition, replace(partition, eligible=eligible))
    if not others:
        if not eligible:
            return partition
        others, eligible = eligible, ()
    draft = replace(partition, isr=others, eligible=eligible)
    draft = _with_isr(draft, _in_sync(draft, availability), rules)
    return _with_new_leader(partition, _with_leader(draft, availability, rules))


def with_preferred_leader(partition: PartitionImage, availability: ReplicaAvailability) -> PartitionImage:
    """Returns the partition led by its first replica, if that is in sync and may lead; else the same object."""
    preferred = partition.replicas[0]
    if (
        partition.leader == preferred
        or preferred not in partition.isr
        or preferred not in availability.electable
    ):
        return partition
    return renewed(partition, replace(partition, leader=preferred))


def with_unclean_leader(partition: PartitionImage, availability: ReplicaAvailability) -> PartitionImage:
    """Returns the partition led by the best replica that is there; the same object when none is."""
    candidate = _least_bad(partition, availability)
    if candidate == NO_LEADER:
        return partition
    return completed(renewed(partition, _led_uncleanly(partition, candidate)), availability)


def was_elected_uncleanly(before: PartitionImage, after: PartitionImage) -> bool:
    """Returns whether this step may have lost acknowledged records."""
    return after.recovering and after.leader not in (NO_LEADER, before.leader)


def renewed(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """Returns `after` with its epochs raised as far as it differs from `before`."""
    if after == before:
        return before
    elected = after.leader != before.leader
    return replace(
        after,
        leader_epoch=LeaderEpoch(before.leader_epoch + 1) if elected else before.leader_epoch,
        partition_epoch=before.partition_epoch + 1,
    )


def _with_new_leader(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """Returns `after` with a new leader epoch, though its leader may be the same; without a leader, does what `renewed`
    does."""
    if after.leader == NO_LEADER:
        return renewed(before, after)
    return replace(
        after,
        leader_epoch=LeaderEpoch(before.leader_epoch + 1),
        partition_epoch=before.partition_epoch + 1,
    )


def eligible_after(
    partition: PartitionImage, isr: tuple[BrokerId, ...], rules: TopicRules
) -> tuple[BrokerId, ...]:
    """Returns replicas outside the new ISR that may lead: they left it while it was, and is, too small to
    move the high watermark.
    """
    if len(isr) >= rules.min_isr_of(partition):
        return ()
    known = (
        *partition.eligible,
        *(broker_id for broker_id in partition.isr if broker_id not in partition.eligible),
    )
    return tuple(broker_id for broker_id in known if broker_id not in isr and broker_id in partition.replicas)


def _as_disks_allow(
    partition: PartitionImage, availability: ReplicaAvailability, rules: TopicRules
) -> ReplicaAvailability:
    """Returns the availability that slow disks allow: `relieved` brokers lead no longer, `staying` ones stay in sync."""
    in_sync = frozenset(partition.isr)
    if availability.slow.isdisjoint(in_sync):
        return availability
    if availability.electable.isdisjoint(in_sync):  # no one is better: a slow disk is as good as any
        return availability._replace(
            electable=availability.electable | availability.slow, slow=frozenset(), relieved=frozenset()
        )
    relieved = availability.relieved & in_sync
    others = (availability.staying & in_sync) - relieved
    if len(others) < rules.min_isr_of(partition):
        return availability
    return availability._replace(staying=availability.staying - relieved)


def _in_sync(partition: PartitionImage, availability: ReplicaAvailability) -> tuple[BrokerId, ...]:
    """Returns the ISR without the replicas that must leave it: only staying replicas if an electable one is among them; else
    only live ones if a serving one is among them; else the whole ISR.

    A broker that did not report yet is no reason to let others go: its replica may be damaged."""
    for candidates, needed in (
        (availability.staying, availability.electable),
        (availability.alive, availability.serving),
    ):
        if not needed.isdisjoint(partition.isr):
            return tuple(broker_id for broker_id in partition.isr if broker_id in candidates)
    return partition.isr


def _with_isr(partition: PartitionImage, isr: tuple[BrokerId, ...], rules: TopicRules) -> PartitionImage:
    if isr == partition.isr:
        return partition
    return replace(partition, isr=isr, eligible=eligible_after(partition, isr, rules))


def _with_leader(
    partition: PartitionImage, availability: ReplicaAvailability, rules: TopicRules
) -> PartitionImage:
    if partition.leader in partition.isr and partition.leader in availability.alive:
        if partition.leader in availability.staying - availability.relieved:
            return partition
        candidate = _first(partition.replicas, availability.electable.intersection(partition.isr))
        if candidate == NO_LEADER and partition.leader not in availability.full | availability.slow:
            candidate = _first(partition.replicas, availability.slow.intersection(partition.isr))
        return partition if candidate == NO_LEADER else _led(partition, candidate)
    candidate = _longest_uncertain(partition, availability)
    if candidate != NO_LEADER:
        return _led(replace(partition, isr=(candidate,)), candidate)
    candidate = _best(partition, partition.isr, availability)
    if candidate != NO_LEADER:
        return _led(partition, candidate)
    candidate = _best(partition, partition.eligible, availability)
    if candidate != NO_LEADER:
        alone = _with_isr(partition, (candidate,), rules)
        return _led(alone, candidate)
    if rules.allows_unclean and availability.alive.isdisjoint((*partition.isr, *partition.eligible)):
        candidate = _least_bad(partition, availability)
        if candidate != NO_LEADER:
            return _led_uncleanly(partition, candidate)
    return _without_leader(partition)


def _longest_uncertain(partition: PartitionImage, availability: ReplicaAvailability) -> BrokerId:
    """Returns the leader where the only replica that may lead is uncertain; NO_LEADER where another rule decides."""
    uncertain = availability.uncertain
    if partition.eligible or len(partition.isr) > 1 or partition.isr[0] not in uncertain:
        return NO_LEADER
    in_order = (*partition.isr, *partition.replicas)  # of logs that are as long, the one in sync
    return max(
        (broker_id for broker_id in in_order if broker_id in uncertain), key=lambda broker: uncertain[broker]
    )


def _first(replicas: tuple[BrokerId, ...], among: frozenset[BrokerId]) -> BrokerId:
    return next((replica for replica in replicas if replica in among), NO_LEADER)


def _best(
    partition: PartitionImage, among: tuple[BrokerId, ...], availability: ReplicaAvailability
) -> BrokerId:
    """Returns the leader out of `among`, by the brokers' disks: one that can write, else a slow one, else a full one."""
    for brokers in (availability.electable, availability.slow, availability.full):
        candidate = _first(partition.replicas, brokers.intersection(among))
        if candidate != NO_LEADER:
            return candidate
    return NO_LEADER


def _least_bad(partition: PartitionImage, availability: ReplicaAvailability) -> BrokerId:
    """Returns the leader where no replica may lead: the one with the least loss."""
    strained = availability.slow | availability.full
    whole = availability.electable - availability.lacking
    for brokers in (
        whole,
        strained - availability.lacking,
        availability.electable | strained,
        availability.lost,
    ):
        candidate = _first(partition.replicas, brokers)
        if candidate != NO_LEADER:
            return candidate
    return NO_LEADER


def _led(partition: PartitionImage, leader: BrokerId) -> PartitionImage:
    return replace(partition, leader=leader, last_known_leader=NO_LEADER, recovering=False)


def _led_uncleanly(partition: PartitionImage, leader: BrokerId) -> PartitionImage:
    return replace(
        partition,
        leader=leader,
        isr=(leader,),
        eligible=(),
        last_known_leader=NO_LEADER,
        recovering=True,
    )


def _without_leader(partition: PartitionImage) -> PartitionImage:
    if partition.leader == NO_LEADER:
        return partition
    return replace(partition, leader=NO_LEADER, last_known_leader=partition.leader)
