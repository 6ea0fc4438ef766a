"""A leader's knowledge of its followers, and the decisions from it: the high watermark and changes of the ISR. Pure.

The rules, and where they come from:

- The high watermark is the smallest end offset in the *maximal* ISR: the one that the controller confirmed and, while a
  proposal is under way, also those whom it adds (KIP-497). More members only hold it back, so this is safe whatever happens to
  the proposal; those whom it removes count until the controller confirmed that. An end offset is what a replica has made
  durable: a follower's is the offset that it fetches from, the leader's own is handed in.
- A replica that keeps up and may join, but is not in the ISR yet, holds it back too. Otherwise the high
  watermark could always stay ahead of it.
- One that the controller took out, or refused, holds it back only after it wrote more, and some time after the last
  refusal: its disk may be full or slow.
- It does not move while the confirmed ISR is smaller than `min.insync.replicas` (KIP-966), or than the number of replicas when
  that is less: what is readable then is on this many replicas, whichever replica goes next.
- It also does not move while the controller regards a replica out of the ISR as eligible to lead (KIP-966),
  and, after members left, until the response tells whether it does. The controller's `min.insync.replicas`
  may differ from ours: it has a file of its own, or a change is on its way here.
- A follower joins when it has everything below the high watermark and reached this leader's epoch (KAFKA-7128): what earlier
  leaders committed may be above the high watermark that this one knows. It must be the incarnation that the cluster knows
  (KIP-841, KIP-903): an older one may have lost what the newer one reported, and the reverse.
- A follower leaves when it has not been caught up for `replica.lag.time.max.ms`. It was caught up at its previous fetch when it
  now has everything that the leader had then: so a busy partition, whose end it never sees, keeps its followers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

from odradek.cluster.image import PartitionImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
_HEARD_SECONDS: Final = 2.0
"""Followers fetch at least every `replica.fetch.wait.max.ms`, which is half a second unless it was set."""
_BEHIND_SECONDS: Final = 5.0
"""How long batches that were sent after a refused one may still be on their way."""
_PROPOSE_AGAIN_S: Final = (1.0, 8.0)
"""How long a follower that the controller refused is not proposed again: first and longest pause, doubled each time."""


class IsrProposal(NamedTuple):
    """An ISR that the leader wants, with the epochs that it knew, so that the controller can refuse a late one."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    """The ISR's brokers and their epochs; -1 for a broker that has not fetched from this leader yet."""


class IsrAnswer(NamedTuple):
    """The controller's answer to a proposal: the partition's state from now on."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int


@dataclass(slots=True)
class FollowerState:
    """One follower, as of its last fetch from this leader."""

    end_offset: int = UNKNOWN_OFFSET
    start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    caught_up_at: float = -inf
    """The time when it last had everything."""
    fetched_at: float = -inf
    leader_end_offset: int = UNKNOWN_OFFSET
    """The leader's log end at that time."""
    barred_until: float = -inf
    """The controller refused it: until then it is not proposed, and holds nothing back."""
    refusal_count: int = 0
    """How often the controller refused it since it was last in the ISR."""
    removed_at_offset: int = UNKNOWN_OFFSET
    """Its end offset when the controller removed it from the ISR: it may be unable to write any more."""
    sent_from: int = UNKNOWN_OFFSET
    """The offset from which it was last sent records: if it fetches from there again, it may have found them damaged."""


class InSync:
    """The followers of one leadership. Times are in seconds, of one monotonic clock."""

    __slots__ = (
        "_awaits_eligible",
        "_awaits_replicas",
        "_brokers",
        "_followers",
        "_lag_s_max",
        "_me",
        "_now",
        "_refused_at",
        "epoch_start_offset",
        "proposal",
        "state",
    )

    def __init__(
        self,
        me: BrokerId,
        state: PartitionImage,
        brokers: Mapping[BrokerId, int],
        *,
        epoch_start_offset: int,
        lag_s_max: float,
        now: float,
    ) -> None:
        """`brokers`: the epochs of those that live and are not leaving. `epoch_start_offset`: where the log ended when the
        leader was elected."""
        self.state = state
        self.epoch_start_offset: Final = epoch_start_offset
        self.proposal: IsrProposal | None = None
        """The one under way, or the last that the controller neither confirmed nor clearly refused."""
        self._awaits_eligible = False
        """Members left by our own proposal: whether they are eligible to lead comes with the next state."""
        self._awaits_replicas = False
        """A reassignment may have been completed with our own proposal: the replicas still come with the next state."""
        self._me = me
        self._brokers = brokers
        self._lag_s_max = lag_s_max
        self._now = now
        self._refused_at = now
        self._followers: dict[BrokerId, FollowerState] = {}
        for broker in state.replicas:
            if broker != me:
                caught_up_at = now if broker in state.isr else -inf
                self._followers[broker] = FollowerState(
                    caught_up_at=caught_up_at, fetched_at=caught_up_at, leader_end_offset=epoch_start_offset
                )

    def update(self, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> None:
        """Takes over a state that the controller published, of the same leadership.

        A newer state also decides a proposal under way: the state holds the proposal, or made it fail. A
        state of the same epoch does not: the controller may be carrying the proposal out. But the response to
        a proposal has neither the replicas nor the eligible ones, and a reassignment may have been completed
        with it. A broker that is no replica any more cannot be added.
        """
        self._now = max(self._now, now)
        self._brokers = brokers
        if state.partition_epoch < self.state.partition_epoch:
            return
        if state.partition_epoch > self.state.partition_epoch or (
            self.proposal is not None
            and any(broker_id not in state.replicas for broker_id, _ in self.proposal.isr)
        ):
            self.proposal = None
        for broker, follower in self._followers.items():
            if broker in state.isr:
                follower.refusal_count = 0
            elif broker in self.state.isr:
                follower.removed_at_offset = follower.end_offset
        self.state = state
        self._awaits_eligible = self._awaits_replicas = False
        for broker in [follower for follower in self._followers if follower not in state.replicas]:
            del self._followers[broker]
        for broker in state.replicas:
            if broker != self._me and broker not in self._followers:
                self._followers[broker] = FollowerState()

    @property
    def followers(self) -> Mapping[BrokerId, FollowerState]:
        return self._followers

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        isr = frozenset(self.state.isr)
        return isr if self.proposal is None else isr.union(broker for broker, _ in self.proposal.isr)

    def is_enough(self, min_in_sync: int) -> bool:
        """Returns whether as many replicas are in sync as `min.insync.replicas` requires, and as the controller's requires.
        All will do where it asks for more."""
        return len(self.state.isr) >= min(min_in_sync, len(self.state.replicas)) and not self.state.eligible

    def refused(self, now: float) -> None:
        """Notes a refused batch that its producer will send again; others of that producer may be on their way after it."""
        self._refused_at = max(self._refused_at, now)

    def believes_gaps(self, now: float) -> bool:
        """Returns whether a gap in a producer's sequence is the producer's own.

        It is not where a batch was refused lately, or where we have just begun to lead and may have refused
        one before. And if no replica that may lead next has fetched lately, one may lead already, and have
        what we miss.
        """
        if now - self._refused_at <= _BEHIND_SECONDS:
            return False
        members = [self._followers[broker] for broker in self.state.isr if broker in self._followers]
        return not members or any(now - member.fetched_at <= _HEARD_SECONDS for member in members)

    # -- events

    def fetched(
        self,
        follower: BrokerId,
        *,
        broker_epoch: int,
        fetch_offset: int,
        start_offset: int,
        end_offset: int,
        now: float,
    ) -> None:
        """Notes that the follower has everything below `fetch_offset` on disk; `end_offset` is the leader's log end.

        NOT_LEADER_OR_FOLLOWER from a broker without a replica here, or from an earlier incarnation; OFFSET_OUT_OF_RANGE when it
        claims what there is not. Nothing is changed then.
        """
        state = self.check_follower(follower, broker_epoch)
        if not 0 <= fetch_offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"broker {follower} fetches from {fetch_offset}, the leader's log ends at {end_offset}",
            )
        self._now = now = max(self._now, now)
        if fetch_offset >= end_offset:
            state.caught_up_at = max(state.caught_up_at, now)
        elif fetch_offset >= state.leader_end_offset:
            state.caught_up_at = max(state.caught_up_at, state.fetched_at)
        state.end_offset = fetch_offset
        state.start_offset = start_offset
        state.broker_epoch = broker_epoch
        state.fetched_at = now
        state.leader_end_offset = end_offset

    def check_follower(self, follower: BrokerId, broker_epoch: int) -> FollowerState:
        state = self._followers.get(follower)
        if state is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {follower} has no replica of this partition"
            )
        known = max(self._brokers.get(follower, UNKNOWN_BROKER_EPOCH), state.broker_epoch)
        if broker_epoch < known:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {follower} fetches with epoch {broker_epoch}; it has registered again, with {known}",
            )
        return state

    def answered(self, proposal: IsrProposal, reply: IsrAnswer | KafkaError) -> bool:
        """Applies the controller's answer to the proposal; returns False, without an effect, when that is out of date.

        An error leaves the proposal in force, so that its additions go on holding back the high watermark, until the next state
        arrives: it is unknown whether it was carried out. Only errors that mean that it was not drop it.
        """
        if proposal is not self.proposal:
            return False
        if isinstance(reply, KafkaError):
            if reply.code not in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
                return False
            self.proposal = None
            for broker, _ in proposal.isr:
                if broker not in self.state.isr and broker in self._followers:
                    self._bar(self._followers[broker])
            return True
        stale = reply.partition_epoch < self.state.partition_epoch
        if stale or (reply.leader, reply.leader_epoch) != (self._me, self.state.leader_epoch):
            return False
        self.proposal = None
        self._awaits_eligible = self._awaits_eligible or not set(self.state.isr).issubset(reply.isr)
        self._awaits_replicas = self.state.is_reassigned
        self.state = replace(
            self.state, isr=reply.isr, partition_epoch=reply.partition_epoch, recovering=False
        )
        return True

    def _bar(self, follower: FollowerState) -> None:
        shortest, longest = _PROPOSE_AGAIN_S
        follower.barred_until = self._now + min(longest, shortest * 2.0**follower.refusal_count)
        follower.refusal_count = min(follower.refusal_count + 1, 10)
        follower.removed_at_offset = follower.end_offset

    # -- decisions

    def next_high_watermark(
        self, current: int, *, durable_offset: int, end_offset: int, min_in_sync: int
    ) -> int:
        """Returns how far the high watermark may advance now; never below `current`."""
        if self._awaits_eligible or not self.is_enough(min_in_sync):
            return current
        reachable = durable_offset
        proposal = self.proposal
        isr = self.state.isr if proposal is None else self.maximal_isr
        for broker, follower in self._followers.items():
            if follower.end_offset < reachable and (
                broker in isr or self._keeps_up(broker, follower, end_offset)
            ):
                reachable = follower.end_offset
        return max(current, reachable)

    def _keeps_up(self, broker: BrokerId, follower: FollowerState, end_offset: int) -> bool:
        return (
            self._is_caught_up(follower, end_offset)
            and self._may_join(broker, follower)
            and follower.end_offset > follower.removed_at_offset
            and self._now >= follower.barred_until
        )

    def _is_caught_up(self, follower: FollowerState, end_offset: int) -> bool:
        return follower.end_offset == end_offset or self._now - follower.caught_up_at <= self._lag_s_max

    def _may_join(self, broker: BrokerId, follower: FollowerState) -> bool:
        return (
            follower.broker_epoch != UNKNOWN_BROKER_EPOCH
            and self._brokers.get(broker) == follower.broker_epoch
        )

    def isr_expand_proposal(self, follower: BrokerId, high_watermark: int) -> IsrProposal | None:
        """Returns the proposal that adds the follower, if it is due: it is then under way."""
        state = self._followers.get(follower)
        if self.proposal is not None or state is None or follower in self.state.isr:
            return None
        if self._awaits_replicas and follower in self.state.removing:
            return None
        if state.end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        if not self._may_join(follower, state) or self._now < state.barred_until:
            return None
        return self._propose((*self.state.isr, follower))

    def late_expand_proposal(self, high_watermark: int, *, end_offset: int) -> IsrProposal | None:
        """Returns the same for a follower that could not be proposed when it fetched. Only one that keeps up:
        one that was just removed may still have everything below a high watermark that does not move."""
        for broker, follower in self._followers.items():
            if self._is_caught_up(follower, end_offset):
                proposal = self.isr_expand_proposal(broker, high_watermark)
                if proposal is not None:
                    return proposal
        return None

    def isr_shrink_proposal(self, *, end_offset: int, now: float) -> IsrProposal | None:
        """Returns the proposal that removes followers that lag, if there are any: it is then under way.

        A follower that has everything is caught up, even if it has had nothing to fetch. When more is appended, its lag counts
        from now, not from its last fetch.
        """
        self._now = now = max(self._now, now)
        for follower in self._followers.values():
            if follower.end_offset == end_offset:
                follower.caught_up_at = now
        if self.proposal is not None:
            return None
        remaining = tuple(broker for broker in self.state.isr if not self._lags(broker, end_offset))
        return None if len(remaining) == len(self.state.isr) else self._propose(remaining)

    def _lags(self, broker: BrokerId, end_offset: int) -> bool:
        if broker == self._me:
            return False
        follower = self._followers.get(broker)
        return follower is None or not self._is_caught_up(follower, end_offset)

    def _propose(self, isr: tuple[BrokerId, ...]) -> IsrProposal:
        self.proposal = IsrProposal(
            leader_epoch=self.state.leader_epoch,
            partition_epoch=self.state.partition_epoch,
            isr=tuple((broker, self._epoch_of(broker)) for broker in isr),
        )
        return self.proposal

    def _epoch_of(self, broker: BrokerId) -> int:
        if broker == self._me:
            return self._brokers.get(broker, UNKNOWN_BROKER_EPOCH)
        follower = self._followers.get(broker)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch

    def low_watermark(self, start_offset: int) -> int:
        """Returns the lowest start offset of the leader and all living followers: none of them has records below it."""
        offsets = [
            follower.start_offset for broker, follower in self._followers.items() if broker in self._brokers
        ]
        return min([start_offset, *offsets])
