"""Roles of replicas: each replica of this broker leads or follows, according to the cluster's image.

`on_led` and `on_lost` come in pairs, one pair for each leadership: a partition that this broker leads again, under another
epoch, was lost in between. What follows is handed to the fetchers, which are made, and imported, when there is something to
follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from odradek.broker.cluster.loss_evidence import is_loss_accepted
from odradek.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from odradek.model.ids import BrokerId
from odradek.replication.partition import Partition
from odradek.runtime.ports import Clock
from odradek.storage.files.leader_epochs import EpochEnd
from odradek.telemetry import events

_log = events.get("broker")


class PartitionFetchers(Protocol):
    """The port to the fetchers: `replication.replica_fetchers.ReplicaFetchers`."""

    def follow(self, partition: Partition, leader: BrokerId) -> None: ...
    def unfollow(self, partition: Partition) -> None: ...
    async def close(self) -> None: ...


class ReplicaRoles:
    """Makes each replica of this broker the leader or a follower, according to the cluster's image. Used on
    the event loop only."""

    def __init__(self, me: BrokerId, clock: Clock) -> None:
        self._me = me
        self._clock = clock
        self._live: dict[BrokerId, int] = {}
        self._led: dict[Partition, int] = {}
        """Partitions that were announced as led, and their leader epochs."""
        self._to_be_led: dict[Partition, int] = {}
        """Led partitions that take no appends yet: their files must follow a truncation before they are announced."""
        self._following: PartitionFetchers | None = None
        self.shared: Final[dict[Partition, None]] = {}
        """Partitions that this broker leads and other brokers follow."""
        self.make_following: Callable[[], PartitionFetchers] | None = None
        self.on_led: Callable[[Partition], None] = _ignore
        self.on_lost: Callable[[Partition], None] = _ignore

    @property
    def live(self) -> Mapping[BrokerId, int]:
        """The epochs of the brokers that may join an ISR; it changes with the image."""
        return self._live

    def brokers_changed(self, image: ClusterImage) -> None:
        # All partitions share one mapping, which is changed in place: no partition needs a call.
        self._live.clear()
        self._live.update(
            {broker.broker_id: broker.epoch for broker in image.brokers if not broker.is_leaving}
        )

    def assume(self, partition: Partition, state: PartitionImage) -> None:
        """Give the partition its role. An older state than the known one changes nothing."""
        known = partition.state
        if partition.retired is not None or (known is not None and _moment(state) < _moment(known)):
            return
        leads = state.leader == self._me
        if leads and partition.log.lacks_records:
            if is_loss_accepted(state, self._me):
                partition.log.mended()
            else:  # a controller that does not know of it yet
                _log.error(
                    "lacking_replica_does_not_lead", partition=partition.name, lack=partition.log.damage
                )
                state, leads = replace(state, leader=NO_LEADER), False
        elif leads and partition.log.is_uncertain:
            partition.log.mended()  # the controller knows of the doubt, and found no one better
        led_under = self._led.get(partition, self._to_be_led.get(partition))
        if led_under is not None and (not leads or led_under != state.leader_epoch):
            self._lose(partition)
        if not leads:
            is_new = known is None or known.leader_epoch != state.leader_epoch
            partition.follow(state)
            if self._me not in state.isr:
                _mend(partition, may_cut=is_new, counts=self._me in state.eligible)
            elif known is not None and self._me not in (*known.isr, *known.eligible):
                _is_whole_again(partition)
            self._follow(partition, state.leader)
            return
        self._unfollow(partition)
        partition.lead(state, self._live, self._clock.monotonic())
        if len(state.replicas) > 1:
            self.shared[partition] = None
        else:
            self.shared.pop(partition, None)
        if partition not in self._led and self._to_be_led.get(partition) != state.leader_epoch:
            waiting = partition.when_cut()
            if waiting is None:
                self._announce(partition, state.leader_epoch)
            else:
                self._to_be_led[partition] = state.leader_epoch
                waiting.add_done_callback(partial(self._files_followed, partition, state.leader_epoch))

    def _files_followed(self, partition: Partition, leader_epoch: int, waited: asyncio.Future[None]) -> None:
        ended = waited.cancelled() or waited.exception() is not None
        if self._to_be_led.get(partition) == leader_epoch:
            del self._to_be_led[partition]
            if not ended:
                self._announce(partition, leader_epoch)

    def _announce(self, partition: Partition, leader_epoch: int) -> None:
        self._led[partition] = leader_epoch
        self.on_led(partition)

    def drop(self, partition: Partition) -> None:
        """Removes the role of a partition that is going away."""
        self._unfollow(partition)
        self._lose(partition)

    def _lose(self, partition: Partition) -> None:
        self.shared.pop(partition, None)
        self._to_be_led.pop(partition, None)
        if self._led.pop(partition, None) is not None:
            self.on_lost(partition)

    def _follow(self, partition: Partition, leader: BrokerId) -> None:
        if leader == NO_LEADER:
            self._unfollow(partition)
            return
        if self._following is None and self.make_following is not None:
            self._following = self.make_following()
        if self._following is not None:
            self._following.follow(partition, leader)

    def _unfollow(self, partition: Partition) -> None:
        if self._following is not None:
            self._following.unfollow(partition)

    async def close(self) -> None:
        """Follow nothing any more."""
        following, self._following, self.make_following = self._following, None, None
        if following is not None:
            await following.close()


def _moment(state: PartitionImage) -> tuple[int, int]:
    return state.leader_epoch, state.partition_epoch


def _mend(partition: Partition, *, may_cut: bool, counts: bool) -> None:
    """Cuts off damaged records, to fetch them again. Only a replica that is not in the ISR may do this, and
    only under a leader epoch in which it did not fetch yet: the leader may count on offsets that it reported
    before, and requests in flight build on them.

    One that counts for nothing, and has nothing or a note of what it lacks, joins the ISR as a new one does.
    """
    damaged_from = partition.log.damage_offset
    if damaged_from is not None:
        if may_cut:
            partition.follower().truncate(EpochEnd(partition.log.epoch_of(damaged_from), damaged_from))
        return
    is_known_to_lack = not partition.log.end_offset or partition.log.lack_note is not None
    if partition.log.damage is not None and is_known_to_lack and not counts:
        partition.log.mended()


def _is_whole_again(partition: Partition) -> None:
    """Marks a damaged log as mended when its replica is in sync again: it has all that its leader has. Other
    records that it lacked exist nowhere, because an operator accepted the loss."""
    if partition.log.damage is not None and partition.log.damage_offset is None:
        partition.log.mended()


def _ignore(_: Partition) -> None:
    """Does nothing: the default callback."""
