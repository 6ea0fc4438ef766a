"""Planted bugs of replication, each of which `replicas_model` must find: what the field got wrong, or nearly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.mutant import Mutant, Patches

from odradek.cluster.image import PartitionImage
from odradek.model.errors import ErrorContent, KafkaError
from odradek.model.ids import BrokerId
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.follower_role import FollowerRole
from odradek.replication.in_sync import InSync, IsrAnswer, IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition
from odradek.replication.replica import Replica
from odradek.storage.log.log import EpochEnd

REPLICA_MUTANTS: Final[list[Mutant]] = []


def _mutant(mistake: str) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    def add(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        name = patches.__name__
        REPLICA_MUTANTS.append(Mutant(name=name, mistake=mistake, scenario="replicas", patches=patches))
        return patches

    return add


@_mutant("the high watermark is what the fastest follower has")
def high_watermark_of_one_follower() -> Patches:
    def mark(self: InSync, current: int, *, durable_offset: int, end_offset: int, min_in_sync: int) -> int:
        ends = [state.end_offset for broker, state in self.followers.items() if broker in self.state.isr]
        return max(current, min(durable_offset, max(ends, default=durable_offset)))

    yield patch.object(InSync, "next_high_watermark", mark)


@_mutant("the leader does not look at what is on its own disk")
def leader_counts_what_it_appended() -> Patches:
    right = InSync.next_high_watermark

    def mark(self: InSync, current: int, *, durable_offset: int, end_offset: int, min_in_sync: int) -> int:
        return right(self, current, durable_offset=end_offset, end_offset=end_offset, min_in_sync=min_in_sync)

    yield patch.object(InSync, "next_high_watermark", mark)


@_mutant("a follower fetches from its log's end, whether that is on disk or not")
def followers_report_what_is_not_durable() -> Patches:
    yield patch.object(Partition, "durable_offset", property(lambda self: self.log.end_offset))


@_mutant(
    "a follower joins the ISR at the high watermark, though this leader's epoch began further on (KAFKA-7128)"
)
def joins_before_the_epoch_start() -> Patches:
    right = InSync.isr_expand_proposal

    def expansion(self: InSync, follower: BrokerId, high_watermark: int) -> IsrProposal | None:
        return _without_epoch_start(right, self, follower, high_watermark)

    yield patch.object(InSync, "isr_expand_proposal", expansion)


def _without_epoch_start(
    right: Any, core: InSync, follower: BrokerId, high_watermark: int
) -> IsrProposal | None:
    state = core.followers.get(follower)
    if state is None or state.end_offset < high_watermark:
        return None
    end_offset = state.end_offset
    state.end_offset = max(end_offset, core.epoch_start_offset)
    try:
        proposal: IsrProposal | None = right(core, follower, high_watermark)
    finally:
        state.end_offset = end_offset
    return proposal


@_mutant("a replica that becomes a follower cuts its log at its high watermark (KIP-101)")
def truncates_to_the_high_watermark() -> Patches:
    right = Partition.follow

    def follow(self: Partition, state: PartitionImage) -> None:
        before = self.leader_epoch
        right(self, state)
        if self.leader_epoch != before and self.high_watermark < self.log.end_offset:
            self.log.truncate_to(self.high_watermark)

    yield patch.object(Partition, "follow", follow)


@_mutant("the log is cut where the leader's epoch ended, though our own epoch ended before (KIP-279)")
def truncates_by_the_leaders_epochs_alone() -> Patches:
    def truncate(self: FollowerRole, diverging: EpochEnd) -> None:
        log = self._replica.log
        offset = min(diverging.end_offset, log.end_offset)
        self._change_end(lambda: log.truncate_to(offset))

    yield patch.object(FollowerRole, "truncate", truncate)


@_mutant(
    "a waiter for an acknowledgement goes on waiting under the next leader, and is answered by its high watermark"
)
def acknowledges_across_a_leader_change() -> Patches:
    shared: dict[Replica, Acknowledgements] = {}
    right = LeaderRole.__init__

    def init(self: LeaderRole, replica: Replica, *arguments: Any) -> None:
        right(self, replica, *arguments)
        self._acknowledgements = shared.setdefault(replica, self._acknowledgements)

    def end(self: LeaderRole, reason: ErrorContent) -> None:
        self._end = reason
        self._low_watermark.refuse(reason)

    def settle(self: FollowerRole) -> None:
        follower(self)
        if (waiting := shared.get(self._replica)) is not None:
            waiting.reached(self._replica.high_watermark)

    follower = FollowerRole.advance_high_watermark
    yield patch.object(LeaderRole, "__init__", init)
    yield patch.object(LeaderRole, "end", end)
    yield patch.object(FollowerRole, "advance_high_watermark", settle)


@_mutant("the high watermark goes by the confirmed ISR, without those whom a proposal adds (KIP-497)")
def forgets_the_maximal_isr() -> Patches:
    yield patch.object(InSync, "maximal_isr", property(lambda self: frozenset(self.state.isr)))
    yield patch.object(InSync, "_keeps_up", lambda *_: False)


@_mutant("those whom a proposal removes do not count any more, before the controller confirmed it")
def shrinks_before_it_is_confirmed() -> Patches:
    def wanted(self: InSync) -> frozenset[BrokerId]:
        if self.proposal is None:
            return frozenset(self.state.isr)
        return frozenset(broker for broker, _ in self.proposal.isr)

    yield patch.object(InSync, "maximal_isr", property(wanted))


@_mutant("a fetch counts whichever incarnation of the broker sent it (KIP-903)")
def accepts_a_stale_broker_epoch() -> Patches:
    right = InSync.fetched

    def fetched(self: InSync, follower: BrokerId, *, broker_epoch: int, **other: Any) -> None:
        known = self._brokers.get(follower, broker_epoch)
        right(self, follower, broker_epoch=known, **other)

    def check(self: LeaderRole, follower: BrokerId, broker_epoch: int, *, knows_epoch: bool) -> None:
        """No one is refused."""

    yield patch.object(InSync, "fetched", fetched)
    yield patch.object(LeaderRole, "check_follower", check)


@_mutant("an error is taken to mean that the proposal was not carried out")
def forgets_a_proposal_of_unknown_fate() -> Patches:
    right = InSync.answered

    def answered(self: InSync, proposal: IsrProposal, response: IsrAnswer | KafkaError) -> bool:
        if isinstance(response, KafkaError) and proposal is self.proposal:
            self.proposal = None
            return True
        return right(self, proposal, response)

    yield patch.object(InSync, "answered", answered)
    yield patch.object(InSync, "_keeps_up", lambda *_: False)


@_mutant("a state that arrives again makes the leader forget the proposal that it has made since")
def forgets_a_proposal_at_any_image() -> Patches:
    right = InSync.update

    def update(self: InSync, state: PartitionImage, brokers: Any, now: float) -> None:
        self.proposal = None
        right(self, state, brokers, now)

    yield patch.object(InSync, "update", update)
    yield patch.object(InSync, "_keeps_up", lambda *_: False)


@_mutant("a follower takes over its leader's high watermark whatever it has itself")
def high_watermark_beyond_the_log() -> Patches:
    right = Replica.make_durable

    def settle(self: FollowerRole) -> None:
        def believed(replica: Replica) -> int:
            return max(right(replica), self._leader_high_watermark)

        with patch.object(Replica, "make_durable", believed):
            settled(self)

    settled = FollowerRole.advance_high_watermark
    yield patch.object(FollowerRole, "advance_high_watermark", settle)


@_mutant("what an older image says is done, too")
def goes_back_to_an_older_state() -> Patches:
    def is_older(self: Partition, state: PartitionImage) -> bool:
        return self.state is not None and state.leader_epoch < self.state.leader_epoch

    def update(self: InSync, state: PartitionImage, brokers: Any, now: float) -> None:
        self._brokers = brokers
        self.state, self.proposal = state, None

    yield patch.object(Partition, "_is_older", is_older)
    yield patch.object(InSync, "update", update)
