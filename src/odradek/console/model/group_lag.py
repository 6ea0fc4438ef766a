"""The known facts of one group at one moment, and why it lags. Pure: offsets and members in, reasons out.

`reasons_of` is a table of causes that look at the same facts; their words are in the catalogues as `why.KIND`. A cause
that needs movement (a partition that does not move, a hot one) compares two moments, so it is silent on the first visit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.client.admin.group_descriptions import SHARE
from odradek.console.model.snapshot import UNKNOWN
from odradek.model.ids import TopicPartition

STUCK_AFTER_MS: Final = 15_000
"""A position that did not move for this long is stuck."""
BUSY_FROM_MS: Final = 10_000
"""A member is busy in a partition where what waits takes it longer than this; longer than a period of automatic commits."""
BACKLOG_MIN: Final = 10
"""A member that reads at least this number of records more than are written works off a backlog."""
MAIN_SHARE: Final = 0.7
"""The share of a group's lag, or of what is written, from which a member or a partition is the cause."""
EXAMPLES_MAX: Final = 3
_REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


class OpenTransactionFact(NamedTuple):
    """The transaction that holds the last stable offset of a partition. Its id is empty where it is not known."""

    transactional_id: str
    producer_id: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition of a group. Offsets are UNKNOWN where there are none."""

    partition: TopicPartition
    position: int = UNKNOWN
    """The committed offset; in a share group the start offset."""
    end: int = UNKNOWN
    stable_end: int = UNKNOWN
    """The last stable offset: readers of committed records come no further."""
    member_id: str = ""
    """The member that it is assigned to; empty without one."""
    waits_ms: int = UNKNOWN
    """The age of the first record that was not read."""
    span_ms: int = 0
    """The time between the two moments that `read` and `written` compare; 0 without an earlier one."""
    read: int = 0
    written: int = 0
    transaction: OpenTransactionFact | None = None

    @property
    def lag(self) -> int:
        """The number of offsets that the group has yet to read; UNKNOWN without both ends."""
        return UNKNOWN if self.position < 0 or self.end < 0 else max(0, self.end - self.position)

    @property
    def is_held_back(self) -> bool:
        """Whether an open transaction hides all that is left to read."""
        return self.lag > 0 and 0 <= self.stable_end <= self.position


class MemberLag(NamedTuple):
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    """A group as its page shows it."""

    group_id: str
    type: str = ""
    state: str = ""
    assignor: str = ""
    coordinator: int = UNKNOWN
    read_ms: int = UNKNOWN
    members: tuple[MemberLag, ...] = ()
    partitions: tuple[PartitionLag, ...] = ()
    problems: tuple[str, ...] = ()
    """The reasons why some of it could not be read."""

    @property
    def lag(self) -> int:
        """The sum of the known lags; UNKNOWN if none is known."""
        known = [row.lag for row in self.partitions if row.lag >= 0]
        return sum(known) if known else UNKNOWN

    @property
    def waits_ms(self) -> int:
        return max((row.waits_ms for row in self.partitions), default=UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReason:
    """One cause; `values` fill the texts `why.KIND.what` and `why.KIND.next`."""

    kind: str
    values: Mapping[str, str | int] = field(default_factory=dict)
    transactional_id: str = ""
    """The transaction that is the cause, where its coordinator is known."""


REASONS: Final = (
    "unread",
    "uncommitted",
    "in_time",
    "no_member",
    "rebalancing",
    "held_back",
    "unassigned",
    "stuck",
    "busy_member",
    "slow_member",
    "hot_partition",
    "one_partition",
    "too_slow",
    "catching_up",
    "behind",
)


def reasons_of(group: GroupDetail) -> list[LagReason]:
    """Returns why the group lags, the surest cause first. There is always at least one reason."""
    late = [row for row in group.partitions if row.lag > 0]
    if not late:
        silent = [row for row in group.partitions if row.position < 0 < row.end]
        if silent:
            return [LagReason(kind="uncommitted", values={"partitions": _examples(silent)})]
        return [LagReason(kind="unread" if group.partitions and group.lag < 0 else "in_time")]
    if not group.members:
        return [LagReason(kind="no_member", values={"lag": group.lag}), *_held_back(group, late)]
    if group.state in _REBALANCING:
        return [LagReason(kind="rebalancing", values={"state": group.state})]
    sure = [reason for cause in _CAUSES for reason in cause(group, late)]
    return sure or [_pace(group, late)]


def _held_back(_: GroupDetail, late: Sequence[PartitionLag]) -> Iterator[LagReason]:
    rows = [row for row in late if row.is_held_back]
    if rows:
        first = next((row.transaction for row in rows if row.transaction is not None), None)
        values: dict[str, str | int] = {"partitions": _examples(rows), "lag": sum(row.lag for row in rows)}
        values["transaction"] = (
            "?" if first is None else first.transactional_id or f"producer {first.producer_id}"
        )
        name = "" if first is None else first.transactional_id
        yield LagReason(kind="held_back", values=values, transactional_id=name)


def _unassigned(group: GroupDetail, late: Sequence[PartitionLag]) -> Iterator[LagReason]:
    rows = [row for row in late if not row.member_id and not row.is_held_back]
    if rows and group.type != SHARE:
        lag = sum(row.lag for row in rows)
        yield LagReason(kind="unassigned", values={"partitions": _examples(rows), "lag": lag})


def _stuck(group: GroupDetail, late: Sequence[PartitionLag]) -> Iterator[LagReason]:
    busy = _busy_members(group)
    rows = [row for row in late if _stands_still(row) and row.member_id not in busy]
    if rows:
        values: dict[str, str | int] = {
            "partitions": _examples(rows),
            "offset": rows[0].position,
            "lag": sum(row.lag for row in rows),
        }
        yield LagReason(kind="stuck", values=values)


def _busy_member(group: GroupDetail, late: Sequence[PartitionLag]) -> Iterator[LagReason]:
    """Names the member that has the most records in partitions which it has not come to, while it works through others."""
    busy = _busy_members(group)
    waiting: defaultdict[str, list[PartitionLag]] = defaultdict(list)
    for row in late:
        if row.member_id in busy and _stands_still(row):
            waiting[row.member_id].append(row)
    members = [member for member in group.members if member.member_id in waiting]
    if not members:
        return
    worst = max(members, key=lambda member: sum(row.lag for row in waiting[member.member_id]))
    rows = waiting[worst.member_id]
    values: dict[str, str | int] = {
        "client": worst.client_id,
        "host": worst.host,
        "partitions": _examples(rows),
        "lag": sum(row.lag for row in rows),
    }
    yield LagReason(kind="busy_member", values=values)


def _busy_members(group: GroupDetail) -> set[str]:
    """Returns the members that work through a backlog: their other partitions only seem not to move."""
    return {row.member_id for row in group.partitions if row.member_id and _is_worked_off(row)}


def _is_worked_off(row: PartitionLag) -> bool:
    """Whether its member reads much more than is written, or needs long for what waits at its pace."""
    is_backlog = row.read - row.written >= max(BACKLOG_MIN, row.written)
    return is_backlog or row.lag * row.span_ms > BUSY_FROM_MS * row.read > 0


def _stands_still(row: PartitionLag) -> bool:
    is_readable = bool(row.member_id) and not row.is_held_back
    return is_readable and row.span_ms >= STUCK_AFTER_MS and row.read == 0


def _slow_member(group: GroupDetail, late: Sequence[PartitionLag]) -> Iterator[LagReason]:
    by_member: defaultdict[str, int] = defaultdict(int)
    for row in late:
        if row.member_id and not row.is_held_back and not _stands_still(row):
            by_member[row.member_id] += row.lag
    if len(group.members) < 2 or not by_member:
        return
    slowest = max(by_member, key=lambda member_id: by_member[member_id])
    member = next((member for member in group.members if member.member_id == slowest), None)
    has_several = member is not None and len(member.partitions) > 1
    if member is not None and has_several and by_member[slowest] >= MAIN_SHARE * group.lag:
        rows = [row for row in late if row.member_id == slowest]
        if max(row.lag for row in rows) < MAIN_SHARE * by_member[slowest]:  # else it is one partition
            values: dict[str, str | int] = {
                "client": member.client_id,
                "host": member.host,
                "lag": by_member[slowest],
            }
            yield LagReason(kind="slow_member", values=values)


def _hot_partition(group: GroupDetail, late: Sequence[PartitionLag]) -> Iterator[LagReason]:
    worst = max(late, key=lambda row: row.lag)
    if len(group.partitions) < 2 or worst.lag < MAIN_SHARE * group.lag:
        return
    if worst.is_held_back or not worst.member_id or _stands_still(worst):
        return
    values: dict[str, str | int] = {"partitions": str(worst.partition), "lag": worst.lag}
    written = sum(row.written for row in group.partitions)
    is_hot = written > 0 and worst.written >= MAIN_SHARE * written
    yield LagReason(kind="hot_partition" if is_hot else "one_partition", values=values)


_CAUSES: Final[tuple[Callable[[GroupDetail, Sequence[PartitionLag]], Iterator[LagReason]], ...]] = (
    _held_back,
    _unassigned,
    _stuck,
    _busy_member,
    _slow_member,
    _hot_partition,
)


def _pace(group: GroupDetail, late: Sequence[PartitionLag]) -> LagReason:
    """Returns the reason that the two moments show for the whole group: nothing is wrong with a part of it."""
    span_ms = max(row.span_ms for row in late)
    read = sum(row.read for row in group.partitions)
    written = sum(row.written for row in group.partitions)
    if span_ms <= 0 or read == written:
        return LagReason(kind="behind", values={"lag": group.lag})
    rates = {"read": round(1000 * read / span_ms), "written": round(1000 * written / span_ms)}
    if read < written:
        return LagReason(kind="too_slow", values=rates)
    return LagReason(
        kind="catching_up", values={**rates, "seconds": round(group.lag * span_ms / (read - written) / 1000)}
    )


def _examples(rows: Iterable[PartitionLag]) -> str:
    listed = sorted(rows, key=lambda row: -row.lag)
    more = ", …" if len(listed) > EXAMPLES_MAX else ""
    return ", ".join(str(row.partition) for row in listed[:EXAMPLES_MAX]) + more
