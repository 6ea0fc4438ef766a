"""What a replica does as the leader: it looks after the ISR, takes appends, and deletes records."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.model.ids import BrokerId
from odradek.records import BatchHeader
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.replication.in_sync import IsrAnswer, IsrProposal
from odradek.replication.replica import Replica
from odradek.storage.log.log import AppendResult
from odradek.storage.producers.producer_state import Marker
from odradek.storage.producers.verification import Guard
from odradek.telemetry import events

_log = events.get("replication")
_PASSING: Final = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR})
"""Why a batch is not written now, and may be in a moment. Questions to coordinators that get no answer end so, too."""


class LeadingReplica(Replica):
    """The leader's half of a partition."""

    __slots__ = ()

    @abstractmethod
    def _propose(self, proposal: IsrProposal) -> None:
        """Bring it to the controller."""

    # -- leading: the ISR

    def check_in_sync(self) -> None:
        """NOT_ENOUGH_REPLICAS unless acks=all can keep what `min.insync.replicas` promises."""
        if self._in_sync is not None and not self._in_sync.is_enough(self.config.min_insync_replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {self.in_sync_count} replica(s) in sync, {self._wanted_in_sync()}",
            )

    def _wanted_in_sync(self) -> str:
        wanted = self.config.min_insync_replicas
        more = "" if self.in_sync_count < wanted else " here, and more at the controller"
        return f"min.insync.replicas is {wanted}{more}"

    def check_follower(self, follower: BrokerId, broker_epoch: int, *, knows_epoch: bool) -> None:
        """Whether the broker may read what only followers may: it has a replica, and is the incarnation that is known.

        `knows_epoch`: it named our leader epoch. Then we may not know yet that it got a replica: UNKNOWN_LEADER_EPOCH.
        """
        if follower not in self.followers:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(
                code, f"broker {follower} has no replica of {self.name}, as far as its leader knows"
            )
        assert self._in_sync is not None
        self._in_sync.check_follower(follower, broker_epoch)

    def follower_fetched(
        self,
        follower: BrokerId,
        broker_epoch: int,
        fetch_offset: int,
        now: float,
        *,
        start_offset: int = -1,
    ) -> None:
        """The follower has everything below `fetch_offset` on disk, as our log has it; its own log begins at `start_offset`.

        NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE: see `InSync.fetched`.
        """
        self.check_leads()
        in_sync = self._in_sync
        if in_sync is None:
            self.check_follower(follower, broker_epoch, knows_epoch=False)
            return
        in_sync.fetched(
            follower,
            broker_epoch=broker_epoch,
            fetch_offset=fetch_offset,
            start_offset=start_offset,
            end_offset=self.log.end_offset,
            now=now,
        )
        proposal = in_sync.expansion(follower, self.high_watermark)
        if proposal is not None:
            self._propose(proposal)
        self._settle()
        if self._low_watermark:
            self._low_watermark.reached(in_sync.low_watermark(self.log.start_offset) + 1)

    def check_in_sync_replicas(self, now: float) -> None:
        """Propose to remove those who lag; to be called several times within `replica.lag.time.max.ms`."""
        if self.retired is not None or self._in_sync is None:
            return
        proposal = self._in_sync.shrinkage(end_offset=self.log.end_offset, now=now)
        if proposal is not None:
            self._propose(proposal)
        self._settle()  # nobody waits any more for one that was about to join, and then fell silent
        self._look_for_joiners()
        if self._low_watermark:
            self._low_watermark.reached(self.low_watermark + 1)

    def _look_for_joiners(self) -> None:
        """Who was ready while another proposal was under way, or was refused, may not fetch again soon."""
        in_sync = self._in_sync
        if in_sync is None or in_sync.proposal is not None:
            return
        proposal = in_sync.late_expansion(self.high_watermark, end_offset=self.log.end_offset)
        if proposal is not None:
            self._propose(proposal)

    def wants(self, proposal: IsrProposal) -> bool:
        """Whether the proposal is still to be brought to the controller."""
        return self.retired is None and self._in_sync is not None and self._in_sync.proposal is proposal

    def isr_answered(self, proposal: IsrProposal, answer: IsrAnswer | KafkaError) -> None:
        """What the controller said to a proposal. Late answers, of another role or state, change nothing."""
        in_sync = self._in_sync
        if self.retired is not None or in_sync is None or not in_sync.answered(proposal, answer):
            return
        if isinstance(answer, KafkaError):
            _log.warning("isr_refused", partition=self.name, reason=answer.message, code=answer.code.name)
        else:
            _log.info(
                "isr_changed",
                partition=self.name,
                isr=list(answer.isr),
                partition_epoch=answer.partition_epoch,
            )
        self.state = in_sync.state
        self._isr_changed()

    def _isr_changed(self) -> None:
        self._settle()
        in_sync = self._in_sync
        wanted = self.config.min_insync_replicas
        if self._acknowledgements and in_sync is not None and not in_sync.is_enough(wanted):
            self._acknowledgements.refuse(
                ErrorContent(
                    code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    message=f"{self.name} was written, but only {self.in_sync_count} replica(s) are in sync now; "
                    f"{self._wanted_in_sync()}",
                )
            )
        if self._low_watermark:
            self._low_watermark.reached(self.low_watermark + 1)
        self._look_for_joiners()

    # -- leading: appending

    def begin_verification(self, header: BatchHeader, *, bumps_epoch: bool, now_ms: int) -> Guard | None:
        """See `Producers.begin_verification`: the guard for a client's transactional batch, None when it needs none."""
        self.check_leads()
        return self.log.producers.begin_verification(header, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def check_writable(self) -> None:
        """Raise what `append` would raise whatever it is given: KAFKA_STORAGE_ERROR, that others lead, or that it is gone."""
        self.check_leads()
        self.log.check_writable()

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int, guard: Guard | None = None
    ) -> AppendResult:
        """Append checked batches as the leader; durable or visible only once the high watermark is past them.

        `guard` comes with a client's transactional batches: see `begin_verification`, and `UNVERIFIED` where it gave none.
        """
        self.check_leads()
        result = self.log.append(batches, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard)
        if not result.duplicate:
            if batches[0][0].attributes & TRANSACTIONAL_BIT:
                self._note_transaction(batches[0][0].producer_id, result.first_offset)
            self._readers.appended(result.last_offset + 1, sum(header.size_bytes for header, _ in batches))
        self._settle()
        return result

    def judged(self, refusal: KafkaError, now: float) -> KafkaError:
        """What to answer to a producer whose batch was refused.

        A gap in its sequence may be ours alone: it sent more behind a batch that was refused for a passing reason, or we were
        succeeded, and not heard of it. A producer that is told of a gap begins anew under another epoch, and librdkafka then
        writes again what other partitions have already. So in doubt it is told to try again: NOT_LEADER_OR_FOLLOWER.
        """
        if self._in_sync is None:
            return refusal
        if refusal.code in _PASSING:
            self._in_sync.refused(now)
        if refusal.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or self._in_sync.believes_gaps(now):
            return refusal
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{refusal.message}; but an earlier batch was refused, or {self.name} has another leader by now: try again",
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> AppendResult:
        """Append the control batch that ends the producer's transaction, if it has one here; see `acknowledgement`.

        INVALID_PRODUCER_EPOCH, or TRANSACTION_COORDINATOR_FENCED for the marker of an older coordinator; nothing is appended
        then. `transaction_version`: from 2 on the coordinator raised the epoch first, so an equal one is of a late marker.
        """
        self.check_leads()
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, is_commit, now_ms)
        size_bytes = self.log.size_bytes
        result = self.log.append_marker(
            marker, transaction_version=transaction_version, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        self._readers.appended(result.last_offset + 1, self.log.size_bytes - size_bytes)
        self._settle()
        return result

    def acknowledgement(self, last_offset: int) -> asyncio.Future[None] | None:
        """None when the record at `last_offset` is already below the high watermark, else a future for that moment.

        The future ends with NOT_LEADER_OR_FOLLOWER with the leadership, and with NOT_ENOUGH_REPLICAS_AFTER_APPEND when too few
        replicas stay in sync.
        """
        self.check_leads()
        if self.high_watermark > last_offset:
            return None
        return self._acknowledgements.wait(last_offset)

    def when_own_records_are_readable(self) -> asyncio.Future[None] | None:
        """A future for the moment when this leader's disk no longer keeps anything that is in the log now from its readers.

        None when it does not, or when followers in sync decide, too: then Kafka's leader does not show it at once either.
        """
        if self.retired is not None or not self.is_leader or self.in_sync_count > 1:
            return None
        return self.when_durable()

    # -- leading: deleting

    @property
    def low_watermark(self) -> int:
        """Nobody who lives and has a replica has records below it any more."""
        start_offset = self.log.start_offset
        return start_offset if self._in_sync is None else self._in_sync.low_watermark(start_offset)

    def delete_records(self, offset: int) -> asyncio.Future[None] | None:
        """Nothing below `offset` may be read here from now on; None when that is so on all followers, too, else a future for
        that moment. OFFSET_OUT_OF_RANGE above the high watermark."""
        self.check_leads()
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {offset}: {self.name} is readable up to {self.high_watermark}",
            )
        started_at = self.log.start_offset
        self.log.delete_records(offset)
        self.flush_if_due()
        has_followed = self.low_watermark >= offset
        if self.log.start_offset > started_at or not has_followed:
            self._readers.start_moved()
        if has_followed:
            return None
        return self._low_watermark.wait(offset)
