"""Planted bugs of replication: what leaders and followers get wrong. Each names its row of the catalogue of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.broker.cluster import disk_identity
from odradek.broker.cluster.disk_identity import DiskIdentity
from odradek.broker.cluster.loss_evidence import ALL_THERE, LossFinding
from odradek.broker.fetch import lone_partition
from odradek.broker.fetch import reading as fetch_reading
from odradek.broker.replicas import opening as replica_opening
from odradek.broker.replicas.opening import LogOpenRequest, ReplicaOpening
from odradek.cluster.image import PartitionImage
from odradek.cluster.known_brokers import DiskClaim, KnownBroker
from odradek.model.errors import ErrorContent, KafkaError
from odradek.model.ids import BrokerId, Offset, TopicPartition
from odradek.records import BatchHeader
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.follower_role import FollowerRole
from odradek.replication.following import FetchPosition, FetchState, FollowedPartition
from odradek.replication.in_sync import FollowerState, InSync, IsrAnswer, IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.replication.lone_rounds import ROUND_OVER, LoneRounds
from odradek.replication.partition import Partition
from odradek.replication.replica import Replica
from odradek.replication.replica_fetchers import _FetchLoop
from odradek.storage.directories import log_openings
from odradek.storage.directories.log_manager import MissingLogAction
from odradek.storage.files.lack_notes import LackNote
from odradek.storage.files.leader_epochs import EpochEnd, EpochHistory
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.log.log import Log

_SCENARIO = "cluster"


# -- what is durable, and where


@mutant("row 11: no replica syncs what it acknowledges", _SCENARIO)
def replicas_never_sync() -> Patches:
    def sync(self: SegmentWriter) -> None:
        self.durable = self.sealed

    yield patch.object(SegmentWriter, "sync", sync)


@mutant("row 11: a follower acknowledges what it merely appended", _SCENARIO)
def follower_acknowledges_unflushed() -> Patches:
    def fetch_position(self: FollowedPartition) -> FetchPosition:
        log: Any = self.replica.log
        return FetchPosition(
            self.leader_epoch,
            log.end_offset,
            log.latest_epoch,
            self.replica.start_offset,
            self.replica.high_watermark,
        )

    async def durable(self: _FetchLoop, followed: FollowedPartition) -> None:
        return None

    yield patch.object(FollowedPartition, "fetch_position", fetch_position)
    yield patch.object(FetchState, "_awaits_flush", lambda *_: False)
    yield patch.object(_FetchLoop, "_durable", durable)
    yield patch.object(LoneRounds, "_acknowledge", lambda _, __, future: future.set_result(ROUND_OVER))


@mutant("row 11: the leader counts itself before its log is flushed", _SCENARIO)
def leader_acknowledges_unflushed() -> Patches:
    real = InSync.next_high_watermark

    def high_watermark(
        self: InSync, current: int, *, durable_offset: int, end_offset: int, min_in_sync: int
    ) -> int:
        return real(self, current, durable_offset=end_offset, end_offset=end_offset, min_in_sync=min_in_sync)

    yield patch.object(InSync, "next_high_watermark", high_watermark)


# -- the high watermark


@mutant("row 21: a leader commits alone, whatever its followers have", _SCENARIO)
def leader_commits_alone() -> Patches:
    def high_watermark(
        self: InSync, current: int, *, durable_offset: int, end_offset: int, min_in_sync: int
    ) -> int:
        return max(current, durable_offset)

    yield patch.object(InSync, "next_high_watermark", high_watermark)


@mutant(
    "row 22: members that the leader wants to remove count no more, before the controller knows", _SCENARIO
)
def shrinks_before_confirmed() -> Patches:
    real = InSync._propose

    def propose(self: InSync, isr: tuple[BrokerId, ...]) -> IsrProposal:
        proposal = real(self, isr)
        self.state = replace(self.state, isr=isr)
        return proposal

    yield patch.object(InSync, "_propose", propose)


@mutant(
    "row 22: a follower joins in the leader's mind alone: it never holds back what is committed", _SCENARIO
)
def maximal_isr_forgotten() -> Patches:
    real = InSync.next_high_watermark

    def high_watermark(
        self: InSync, current: int, *, durable_offset: int, end_offset: int, min_in_sync: int
    ) -> int:
        if not self.is_enough(min_in_sync):
            return current
        ends = [
            self._followers[broker_id].end_offset
            for broker_id in self.state.isr
            if broker_id in self._followers
        ]
        return max(current, min([durable_offset, *ends]))

    assert real is not high_watermark
    yield patch.object(InSync, "next_high_watermark", high_watermark)


@mutant("row 9: a new leader takes all that it has for committed", _SCENARIO)
def new_leader_commits_all() -> Patches:
    real = Partition.lead

    def lead(self: Partition, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> None:
        real(self, state, brokers, now)
        self._replica.high_watermark = Offset(self.log.end_offset)

    yield patch.object(Partition, "lead", lead)


@mutant("row 6: a follower believes its leader's high watermark beyond its own log", _SCENARIO)
def follower_watermark_unbounded() -> Patches:
    def advance_high_watermark(self: FollowerRole) -> None:
        replica = self._replica
        replica.make_durable()
        if self._leader_high_watermark > replica.high_watermark:
            replica.high_watermark = Offset(self._leader_high_watermark)
            replica.readers.high_watermark_moved()

    yield patch.object(FollowerRole, "advance_high_watermark", advance_high_watermark)


@mutant("row 58: a follower shows readers all that it has", _SCENARIO)
def follower_shows_all() -> Patches:
    def advance_high_watermark(self: FollowerRole) -> None:
        replica = self._replica
        durable_offset = replica.make_durable()
        if durable_offset > replica.high_watermark:
            replica.high_watermark = Offset(durable_offset)
            replica.readers.high_watermark_moved()

    yield patch.object(FollowerRole, "advance_high_watermark", advance_high_watermark)


# -- roles


@mutant("row 1: who becomes a follower cuts its log at its own high watermark", _SCENARIO)
def truncates_to_high_watermark() -> Patches:
    real = Partition.follow

    def follow(self: Partition, state: PartitionImage) -> None:
        before = self.leader_epoch if self.state is not None else None
        real(self, state)
        is_new = before != self.leader_epoch and not self.is_leader
        if (
            is_new
            and self.high_watermark < self.log.end_offset
            and self.log.start_offset <= self.high_watermark
        ):
            self.follower()._change_end(lambda: self.log.truncate_to(self.high_watermark))

    yield patch.object(Partition, "follow", follow)


@mutant("row 2: logs that have parted are gone on with", _SCENARIO)
def divergence_ignored() -> Patches:
    for module in (fetch_reading, lone_partition):
        yield patch.object(module, "divergence", lambda partition, wanted: None)


@mutant("row 2: a follower cuts where the leader's epoch ends, and looks no further back", _SCENARIO)
def cuts_too_little() -> Patches:
    real = FollowerRole.truncate

    def truncate(self: FollowerRole, diverging: EpochEnd) -> None:
        end_offset = self._replica.log.end_offset
        real(self, EpochEnd(diverging.epoch, min(diverging.end_offset + 1, end_offset)))

    yield patch.object(FollowerRole, "truncate", truncate)


@mutant("row 4: a log that is cut goes on to name epochs that it does not hold", _SCENARIO)
def epochs_of_what_was_cut_are_kept() -> Patches:
    def truncate_from_end(self: EpochHistory, end_offset: int) -> bool:
        return False

    yield patch.object(EpochHistory, "truncate_from_end", truncate_from_end)


@mutant("row 31: a waiter for an acknowledgement gets it when the leadership ends", _SCENARIO)
def acknowledged_at_the_end_of_a_role() -> Patches:
    def refuse(self: Acknowledgements, error: KafkaError) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    yield patch.object(Acknowledgements, "refuse", refuse)


@mutant(
    "row 70: who waited under one leadership is answered under the next",
    _SCENARIO,
    aside="its leader must be deposed, cut, and elected again while its client still waits: not met in 40 seeds",
)
def waits_across_roles() -> Patches:
    shared: dict[Replica, Acknowledgements] = {}
    real = LeaderRole.__init__

    def init(self: LeaderRole, replica: Replica, *arguments: Any) -> None:
        real(self, replica, *arguments)
        self._acknowledgements = shared.setdefault(replica, self._acknowledgements)

    def end(self: LeaderRole, reason: ErrorContent) -> None:
        self._end = reason

    yield patch.object(LeaderRole, "__init__", init)
    yield patch.object(LeaderRole, "end", end)
    yield patch.object(Replica, "end_role", lambda self, reason: self.readers.end())


@mutant("row 21: a broker that must follow goes on leading", _SCENARIO)
def leads_on() -> Patches:
    real = Partition.follow

    def follow(self: Partition, state: PartitionImage) -> None:
        before = self._role
        real(self, state)
        if isinstance(before, LeaderRole) and before.followers:
            before.state, before._end = state, None
            self._role = before

    yield patch.object(Partition, "follow", follow)


# -- who is in sync


@mutant("row 5: a follower joins the ISR before it reached the leader's epoch", _SCENARIO)
def joins_before_the_epoch() -> Patches:
    real = InSync.isr_expand_proposal

    def expansion(self: InSync, follower: BrokerId, high_watermark: int) -> IsrProposal | None:
        start = self.epoch_start_offset
        object.__setattr__(self, "epoch_start_offset", 0)
        try:
            return real(self, follower, high_watermark)
        finally:
            object.__setattr__(self, "epoch_start_offset", start)

    yield patch.object(InSync, "isr_expand_proposal", expansion)


@mutant("row 5: a follower joins the ISR wherever it is", _SCENARIO)
def joins_from_anywhere() -> Patches:
    def expansion(self: InSync, follower: BrokerId, high_watermark: int) -> IsrProposal | None:
        if self.proposal is not None or follower in self.state.isr or follower not in self._followers:
            return None
        return self._propose((*self.state.isr, follower))

    yield patch.object(InSync, "isr_expand_proposal", expansion)


@mutant("row 29: a follower that fell out of the ISR never comes back", _SCENARIO)
def isr_never_grows() -> Patches:
    def expansion(self: InSync, follower: BrokerId, high_watermark: int) -> IsrProposal | None:
        return None

    yield patch.object(InSync, "isr_expand_proposal", expansion)


@mutant("row 22: a proposal that was refused is waited for, for ever", _SCENARIO)
def refusal_never_forgotten() -> Patches:
    def update(self: InSync, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> None:
        proposal = self.proposal
        real_update(self, state, brokers, now)
        self.proposal = proposal

    real_update = InSync.update

    def answered(self: InSync, proposal: IsrProposal, response: IsrAnswer | KafkaError) -> bool:
        return real_answered(self, proposal, response) if isinstance(response, IsrAnswer) else False

    real_answered = InSync.answered
    yield patch.object(InSync, "update", update)
    yield patch.object(InSync, "answered", answered)


@mutant(
    "row 23: fetches of an earlier life of a broker count",
    _SCENARIO,
    aside="what a replica has durably outlives its process, so what an earlier life fetched from stays true",
)
def old_incarnations_count() -> Patches:
    def check_follower(self: InSync, follower: BrokerId, broker_epoch: int) -> FollowerState:
        return self._followers[follower]

    yield patch.object(InSync, "check_follower", check_follower)


@mutant("row 10: the high watermark moves although too few are in sync", _SCENARIO)
def commits_with_too_few() -> Patches:
    real = InSync.next_high_watermark

    def high_watermark(
        self: InSync, current: int, *, durable_offset: int, end_offset: int, min_in_sync: int
    ) -> int:
        state, waits = self.state, self._awaits_eligible
        self.state, self._awaits_eligible = replace(state, eligible=()), False
        try:
            return real(self, current, durable_offset=durable_offset, end_offset=end_offset, min_in_sync=1)
        finally:
            self.state, self._awaits_eligible = state, waits

    yield patch.object(InSync, "next_high_watermark", high_watermark)


# -- following


@mutant("row 32: out of range, a follower drops everything and begins where its leader does", _SCENARIO)
def begins_again_too_soon() -> Patches:
    async def act(self: _FetchLoop, followed: FollowedPartition, data: Any, outcome: Any) -> None:
        partition: Any = followed.replica
        if data.diverging_epoch.epoch >= 0:
            partition.follower().restart_at(max(0, data.log_start_offset))
        else:
            await real(self, followed, data, outcome)

    real = _FetchLoop._act
    yield patch.object(_FetchLoop, "_act", act)


@mutant("row 16: a follower does not look whether what it fetched is what was written", _SCENARIO)
def follower_skips_a_batch() -> Patches:
    real = FollowerRole.append_fetched

    def append_fetched(
        self: FollowerRole, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int
    ) -> None:
        kept = [batch for batch in batches if batch[0].base_offset % 11 != 10] or batches
        real(self, kept, now_ms=now_ms)

    yield patch.object(FollowerRole, "append_fetched", append_fetched)


@mutant("row 56: a follower forgets which batches of a producer it has", _SCENARIO)
def producers_not_replicated() -> Patches:
    real = Log.append_as_follower

    def append_as_follower(self: Log, batches: Any, *, now_ms: int) -> None:
        real(self, batches, now_ms=now_ms)
        for header, _ in batches:
            state = self.producers.get(header.producer_id)
            if state is not None and state.transaction_first_offset < 0:
                self.producers._states.pop(header.producer_id, None)

    yield patch.object(Log, "append_as_follower", append_as_follower)


@mutant("row 71: a follower whose leader fell silent asks no more", _SCENARIO)
def follower_gives_up() -> Patches:
    real = _FetchLoop._fetch

    async def fetch(self: _FetchLoop, request: Any) -> Any:
        try:
            return await real(self, request)
        except Exception:
            await asyncio.sleep(10_000)
            raise

    yield patch.object(_FetchLoop, "_fetch", fetch)


@mutant(
    "row 3: a fetch is answered whatever leader epoch it names",
    _SCENARIO,
    aside="who fetches also says in which epoch its log ends: where logs have parted, nothing is counted or sent",
)
def leader_epochs_not_compared() -> Patches:
    def check_leader_epoch(self: Partition, expected: int) -> None:
        return None

    yield patch.object(Partition, "check_leader_epoch", check_leader_epoch)


@mutant("no one asks for the flush with which the files follow a truncation", _SCENARIO)
def truncation_never_flushed() -> Patches:
    real = FollowerRole._change_end

    def change_end(self: FollowerRole, work: Any) -> None:
        with patch.object(Replica, "flush_if_due", lambda _: None):
            real(self, work)

    yield patch.object(FollowerRole, "_change_end", change_end)


@mutant("a follower truncates on the event loop", _SCENARIO)
def truncated_on_the_loop() -> Patches:
    real = FollowerRole._change_end

    def change_end(self: FollowerRole, work: Any) -> None:
        real(self, work)
        log = self._replica.log
        if (job := log.flush_job()) is not None:
            job.run()
            log.flushed(job)

    yield patch.object(FollowerRole, "_change_end", change_end)


# -- replicas that come and go


@mutant("a replica whose log was opened after its image was applied takes no role", _SCENARIO)
def opened_without_a_role() -> Patches:
    def apply_newest_image(self: ReplicaOpening, partition: Partition) -> None:
        self._registry.add(partition)

    yield patch.object(ReplicaOpening, "apply_newest_image", apply_newest_image)


@mutant(
    "a log that is opened or deleted is done with after one look at the image",
    _SCENARIO,
    aside="only a topic that changes while its log is being opened meets it; scenarios/test_image_changes.py does",
)
def one_step_and_no_more() -> Patches:
    async def settle(self: ReplicaOpening, name: TopicPartition) -> None:
        step = self.next_step(name)
        if isinstance(step, LogOpenRequest):
            await self._open(step)
        elif step is not None:
            await self._remove(name)

    yield patch.object(ReplicaOpening, "settle", settle)


# -- disks that are not what they were


@mutant("row 10: a replica whose log is gone passes for a whole one", _SCENARIO)
def lost_replica_is_whole() -> Patches:
    whole = LossFinding(repairable=True, if_absent=MissingLogAction.MAKE)
    yield patch.object(replica_opening, "judged", lambda *_, **__: whole)


@mutant("an older copy of a disk passes for the newest", _SCENARIO)
def older_copy_is_newest() -> Patches:
    yield patch.object(disk_identity, "compared", lambda *_, **__: ALL_THERE)


@mutant("a start, and a checkpoint, leave the generation of a disk as it was", _SCENARIO)
def generation_not_raised() -> Patches:
    real = DiskIdentity._next

    async def _next(self: DiskIdentity, *, is_clean: bool) -> DiskClaim:
        present = {directory.directory_id for directory in self._directories.all()}
        if present != set(self._known):
            return await real(self, is_clean=is_clean)
        after = KnownBroker(broker_id=self._me, directories=self._known, is_clean=is_clean)
        self._pending = DiskClaim(version=self._version, after=after, own_tokens=self._own_tokens)
        return self._pending

    yield patch.object(DiskIdentity, "_next", _next)


@mutant(
    "an empty log that replaces a lost one has no note of it on the disk",
    _SCENARIO,
    aside="only a crash before the controller acts upon the loss meets it; the unit tests crash at each step",
)
def lack_is_not_noted() -> Patches:
    def write_note(disk: Any, directory: str, note: LackNote) -> None:
        return None

    yield patch.object(log_openings, "write_note", write_note)
