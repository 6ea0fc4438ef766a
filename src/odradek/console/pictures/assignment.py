"""The partitions of a group as cells, a row for each member: what it reads, and how far it lags. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.console.model.group_lag import GroupDetail, PartitionLag

CELL: Final = 16
GAP: Final = 3
COLUMNS: Final = 24
MEMBERS_MAX: Final = 30
CELLS_MAX: Final = 240
"""The number of partitions that are drawn of one member."""
WIDTH: Final = COLUMNS * (CELL + GAP) - GAP
_SOME_SHARE, _MOST_SHARE = 0.01, 0.34


class AssignmentCell(NamedTuple):
    """One partition. `level`: 0 nothing to read, 1 a little, 2 some, 3 much of the group's largest lag; 4 unknown."""

    x: int
    y: int
    level: int
    row: PartitionLag


class AssignmentRow(NamedTuple):
    """A member and its cells. `left`: partitions that are not drawn. The member's id is empty for partitions without one."""

    member_id: str
    client_id: str
    host: str
    lag: int
    cells: tuple[AssignmentCell, ...]
    height: int
    left: int


def assignment_rows(group: GroupDetail) -> list[AssignmentRow]:
    """Returns a row for each member, the largest lag first; before them a row of partitions that no member has."""
    largest = max((row.lag for row in group.partitions), default=0)
    by_member: dict[str, list[PartitionLag]] = {member.member_id: [] for member in group.members}
    for row in group.partitions:
        by_member.setdefault(row.member_id, []).append(row)
    named = {member.member_id: member for member in group.members}
    rows = []
    for member_id, partitions in by_member.items():
        member = named.get(member_id)
        client_id, host = ("", "") if member is None else (member.client_id, member.host)
        cells = _cells(partitions[:CELLS_MAX], largest)
        lag = sum(max(0, row.lag) for row in partitions)
        left = len(partitions) - len(cells)
        height = -(-max(1, len(cells)) // COLUMNS) * (CELL + GAP) - GAP
        rows.append(AssignmentRow(member_id, client_id, host, lag, cells, height, left))
    return sorted(rows, key=lambda row: (bool(row.member_id), -row.lag))[:MEMBERS_MAX]


def _cells(partitions: Sequence[PartitionLag], largest: int) -> tuple[AssignmentCell, ...]:
    return tuple(
        AssignmentCell(
            index % COLUMNS * (CELL + GAP), index // COLUMNS * (CELL + GAP), _level(row.lag, largest), row
        )
        for index, row in enumerate(partitions)
    )


def _level(lag: int, largest: int) -> int:
    if lag <= 0:
        return 0 if lag == 0 else 4
    share = lag / largest
    return 3 if share >= _MOST_SHARE else 2 if share >= _SOME_SHARE else 1
