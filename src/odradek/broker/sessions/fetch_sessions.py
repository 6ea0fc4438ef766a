"""Fetch sessions (KIP-227): a client names its partitions once, then sends and receives only what changed.

A pure core: no clock, no I/O; `now` comes in as seconds. Rules, in the words of the KIP:

    session id, epoch    meaning
    0, 0                 full fetch, please open a session
    0, -1                full fetch, no session
    id, -1               close the session; full fetch
    id, 0                close the session; full fetch, please open another
    id, n > 0            incremental fetch; n must be the epoch that the server expects next

A full cache gives a slot to a newcomer only when some session has not been used for the eviction time; otherwise the
newcomer goes without (session id 0), which costs bandwidth and breaks nothing. So does one whose partitions are too many
for what all consumers' sessions may hold. A consumer's session that is unused for the eviction time ends. Followers, whose
sessions are large and last, need not wait: they take the slot of a consumer, and none takes theirs before that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.schema import INT64_MAX

if TYPE_CHECKING:
    from odradek.broker.sessions.unchanged_partitions import UnchangedPartitions

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class PartitionKey(NamedTuple):
    """A client's key of a partition: topic name (up to Fetch v12) or topic id (from v13), and number."""

    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedPartition:
    """A client's request for one partition."""

    key: PartitionKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    high_watermark: int = INT64_MAX
    """The one that a follower knows (KIP-1166); others send none, and need no notice when it moves."""


@dataclass(slots=True)
class _Cached:
    """A wanted partition and what the client last heard about it."""

    wanted: RequestedPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    is_troubled: bool = False
    """The last answer was an error, say: the next one tells the client that this is over, whatever it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPartition:
    """The values that a response sent of a partition, by which the next response decides whether to mention it."""

    key: PartitionKey
    high_watermark: int
    log_start_offset: int
    has_records: bool
    has_news: bool
    """An error, a diverging epoch or a preferred replica: always worth saying."""


class FetchSession:
    """One client's partitions, in the order in which they will be served."""

    __slots__ = (
        "_active",
        "_resting",
        "epoch",
        "is_follower",
        "last_used",
        "owner",
        "partitions",
        "resting",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, *, uses_topic_ids: bool, owner: str, now: float, is_follower: bool = False
    ) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.owner = owner
        self.epoch = 1
        self.last_used = now
        self.partitions: dict[PartitionKey, _Cached] = {}
        self._active: dict[PartitionKey, None] = {}
        self._resting: dict[PartitionKey, Callable[[], None]] = {}
        self.resting: UnchangedPartitions[PartitionKey] | None = None
        """The watcher of a follower's partitions in which nothing happens."""

    def update(self, wanted: Iterable[RequestedPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Applies a request's changes. A partition that is both forgotten and wanted is wanted again, as if it were new."""
        for key in forgotten:
            self.wake(key)
            self._active.pop(key, None)
            self.partitions.pop(key, None)
        for partition in wanted:
            self.wake(partition.key)
            cached = self.partitions.get(partition.key)
            if cached is None:
                self.partitions[partition.key] = _Cached(partition)
            else:
                cached.wanted = partition

    def wanted(self) -> list[RequestedPartition]:
        """Returns the partitions to read: all but those that rest."""
        partitions = self.partitions
        if not self._resting:
            return [cached.wanted for cached in partitions.values()]
        return [partitions[key].wanted for key in self._active]

    @property
    def resting_count(self) -> int:
        """The number of partitions in which nothing happens."""
        return len(self._resting)

    def is_alone(self, key: PartitionKey) -> bool:
        """Returns whether the session has this partition, and all others rest."""
        return key in self.partitions and len(self.partitions) - len(self._resting) == (
            key not in self._resting
        )

    def rest(self, key: PartitionKey, stop: Callable[[], None]) -> None:
        """Leaves the partition out of answers until it is woken; `stop` is called then."""
        self._active.pop(key, None)
        self._resting[key] = stop

    def wake(self, key: PartitionKey) -> None:
        self._active[key] = None
        stop = self._resting.pop(key, None)
        if stop is not None:
            stop()

    def close(self) -> None:
        """Ends the watching of its partitions."""
        for key in list(self._resting):
            self.wake(key)
        self.resting = None  # it holds this session

    def is_news(self, key: PartitionKey, high_watermark: int, log_start_offset: int) -> bool:
        """Tells whether the client last received something else, and did not name these marks itself.

        A follower names its own. It knows all about a partition in which nothing was written, and needs no answer about it.
        """
        cached = self.partitions.get(key)
        if cached is None or cached.is_troubled:
            return True
        wanted = cached.wanted
        return high_watermark not in (
            cached.high_watermark,
            wanted.high_watermark,
        ) or log_start_offset not in (cached.log_start_offset, wanted.log_start_offset)

    def lags_in_start(self, wanted: RequestedPartition, start_offset: int) -> bool:
        """Tells whether the client's log begins below `start_offset`, and the client does not know that."""
        cached = self.partitions.get(wanted.key)
        known_start_offset = -1 if cached is None else cached.log_start_offset
        return wanted.log_start_offset < start_offset != known_start_offset

    def sent_high_watermark(self, key: PartitionKey) -> int:
        """Returns the one that the client last heard; -1 when none."""
        cached = self.partitions.get(key)
        return -1 if cached is None else cached.high_watermark

    def changed(self, sent_partition: SentPartition) -> bool:
        """Tells whether an incremental response must mention the partition; remembers that it did."""
        cached = self.partitions.get(sent_partition.key)
        if cached is None:
            return True
        news = (
            sent_partition.has_records
            or sent_partition.has_news
            or self.is_news(
                sent_partition.key, sent_partition.high_watermark, sent_partition.log_start_offset
            )
        )
        cached.high_watermark = sent_partition.high_watermark
        cached.log_start_offset = sent_partition.log_start_offset
        cached.is_troubled = sent_partition.has_news
        if sent_partition.has_records:
            # Served now, so it goes to the back: a busy partition must not starve the others.
            self.partitions[sent_partition.key] = self.partitions.pop(sent_partition.key)
            if sent_partition.key in self._active:
                del self._active[sent_partition.key]
                self._active[sent_partition.key] = None
        return news


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFetchPlan:
    """The partitions to read for one request, and the session (if any) that the answer belongs to."""

    wanted: Sequence[RequestedPartition]
    session: FetchSession | None
    incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else NO_SESSION


SESSION_PARTITIONS_MAX: Final = 10_000
"""The partitions in one client's session. A client that fetches more has no session and sends its whole list each time."""
ALL_PARTITIONS_MAX: Final = 250_000
"""The partitions in the sessions of all consumers: some 100 MB."""


class FetchSessions:
    """The fetch sessions of a broker, at most `slots` of them; consumers' sessions hold at most
    `partitions_max` partitions."""

    def __init__(
        self,
        *,
        slots: int,
        eviction_seconds: float,
        chance: Callable[[], float],
        partitions_max: int = ALL_PARTITIONS_MAX,
    ) -> None:
        self._partitions_max = partitions_max
        self._slots = slots
        self._eviction_seconds = eviction_seconds
        self._chance = chance
        self._sessions: dict[int, FetchSession] = {}  # in order of last use

    def __len__(self) -> int:
        return len(self._sessions)

    def by_id(self) -> dict[int, FetchSession]:
        """Returns a copy of the current sessions by id, the longest unused first."""
        return dict(self._sessions)

    def plan(
        self,
        *,
        session_id: int,
        epoch: int,
        wanted: Sequence[RequestedPartition],
        forgotten: Sequence[PartitionKey],
        uses_topic_ids: bool,
        owner: str,
        now: float,
        is_follower: bool = False,
    ) -> SessionFetchPlan:
        """Decide what a request means. Raises the session errors of the KIP; none of them harms another session."""
        self._end_idle_consumers(now, but=session_id)
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._close(session_id, owner)
            session = None
            if epoch == INITIAL_EPOCH and wanted and (is_follower or self._has_room(len(wanted))):
                session = self._open(uses_topic_ids, owner, now, is_follower=is_follower)
            if session is not None:
                session.update(wanted, ())
            return SessionFetchPlan(wanted=wanted, session=session, incremental=False)
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} expects epoch {session.epoch}, the request says {epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                "a fetch session names topics by name or by id, and this request does it the other way",
            )
        grown_count = len(wanted) - len(forgotten)
        if not is_follower and (
            len(session.partitions) + grown_count > SESSION_PARTITIONS_MAX
            or (grown_count > 0 and not self._has_room(grown_count))
        ):
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session_id} would have too many partitions",
            )
        self.continue_with(session, wanted, forgotten, now)
        if not session.partitions:
            del self._sessions[session_id]
            session.close()
            return SessionFetchPlan(wanted=(), session=None, incremental=True)
        return SessionFetchPlan(wanted=session.wanted(), session=session, incremental=True)

    def continue_with(
        self,
        session: FetchSession,
        wanted: Iterable[RequestedPartition],
        forgotten: Iterable[PartitionKey],
        now: float,
    ) -> None:
        """Applies a request of the session's epoch."""
        session.update(wanted, forgotten)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.last_used = now
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def of_follower(self, session_id: int, epoch: int, owner: str) -> FetchSession | None:
        """Returns the session, by topic ids, that a follower's request of this epoch continues; None if `plan` would refuse it,
        or do more than continue."""
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner or session.epoch != epoch or not session.uses_topic_ids:
            return None
        return session

    def _close(self, session_id: int, owner: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            del self._sessions[session_id]
            session.close()

    def _open(
        self, uses_topic_ids: bool, owner: str, now: float, *, is_follower: bool
    ) -> FetchSession | None:
        if is_follower:
            self._forget_idle_followers(now)
        if self._slots <= 0 or (len(self._sessions) >= self._slots and not self._evict(now, is_follower)):
            return None
        session_id = 0
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = int(self._chance() * _EPOCH_MAX)
        session = FetchSession(
            session_id, uses_topic_ids=uses_topic_ids, owner=owner, now=now, is_follower=is_follower
        )
        self._sessions[session_id] = session
        return session

    def _has_room(self, count: int) -> bool:
        """Tells whether `count` more partitions fit into the sessions of consumers."""
        held = sum(len(session.partitions) for session in self._sessions.values() if not session.is_follower)
        return held + count <= self._partitions_max

    def _end_idle_consumers(self, now: float, *, but: int) -> None:
        """Ends idle sessions, whose clients may be gone, except the session `but`."""
        idle = []
        for session in self._sessions.values():
            if now - session.last_used < self._eviction_seconds:
                break
            if not session.is_follower and session.session_id != but:
                idle.append(session)
        for session in idle:
            del self._sessions[session.session_id]
            session.close()

    def _forget_idle_followers(self, now: float) -> None:
        """Forgets sessions that followers have not used: a follower that lost its connection begins another session, and
        never comes back to the old one."""
        for session in list(self._sessions.values()):
            if session.is_follower and now - session.last_used >= self._eviction_seconds:
                del self._sessions[session.session_id]
                session.close()

    def _evict(self, now: float, for_follower: bool) -> bool:
        """Free a slot, if one may be."""
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used < self._eviction_seconds:
            if not for_follower:
                return False
            consumers = (session for session in self._sessions.values() if not session.is_follower)
            consumer = next(consumers, None)
            if consumer is None:
                return False
            oldest = consumer
        del self._sessions[oldest.session_id]
        oldest.close()
        return True


def named(topic: str, partition: int) -> PartitionKey:
    return PartitionKey(topic, ZERO_UUID, partition)


def identified(topic_id: UUID, partition: int) -> PartitionKey:
    return PartitionKey("", topic_id, partition)
