"""The lag in time of many groups, for a list of them: the age of the first record that each group has not read.

The meaning is the same as on a group's own page (`unread_ages`), so records are read. That costs more than an offset, so only
groups that a page shows are read, one reading at a time, and a reading that took long is repeated late.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from odradek.client.consumer.unread_ages import PARTITIONS_MAX
from odradek.client.network.errors import explain
from odradek.console.model.snapshot import UNKNOWN
from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

_log = events.get("console")

AGE_S: Final = 10.0
"""An age is read again after this, or after `SHARE` times what the last reading took."""
SHARE: Final = 10.0
SHOWN_S: Final = 300.0
"""An older age is not shown."""
KEPT_MAX: Final = 2_000
GROUPS_AT_ONCE: Final = 50
"""The groups of one reading."""
ROUNDS_MAX: Final = 50
"""The assignments of one reading: groups at different offsets of one partition need one for each."""

LatePositions = Mapping[TopicPartition, int]


class AgeSource(Protocol):
    """Reads the ages of unread records, such as a `ClusterReader`."""

    async def unread_ages_of(self, rounds: Sequence[LatePositions]) -> list[dict[TopicPartition, int]]:
        """Returns the ages at the positions of each round; rounds that were not reached in time are left out."""


class _KnownAge(NamedTuple):
    waits_ms: int
    read_s: float


class GroupAges:
    """Ages of groups that pages ask for. `begin` and `close` on the background loop; `of` from any thread.

    `late` returns the positions with the largest lags for each of these groups; none for a group that has read everything.
    A group whose offsets are not known is left out.
    """

    def __init__(
        self,
        source: AgeSource,
        clock: Clock,
        late: Callable[[list[str]], Awaitable[Mapping[str, LatePositions]]],
    ) -> None:
        self._source = source
        self._clock = clock
        self._late = late
        self._ages: OrderedDict[str, _KnownAge] = OrderedDict()
        self._pause_s = AGE_S
        self._task: asyncio.Task[None] | None = None

    def of(self, name: str) -> int:
        """Returns the milliseconds for which the group's first unread record waits; UNKNOWN before it was read."""
        known = self._ages.get(name)
        is_shown = known is not None and self._clock.monotonic() - known.read_s < SHOWN_S
        return known.waits_ms if known is not None and is_shown else UNKNOWN

    async def begin(self, names: Iterable[str], wait_s: float = 0.0) -> None:
        """Has the ages of these groups read that are due, those read longest ago first, and waits at most `wait_s` for them."""
        if self._task is None:
            due = self._due(names)
            if not due:
                return
            self._task = asyncio.get_running_loop().create_task(self._read(due))
            self._task.add_done_callback(self._is_read)
        if wait_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await outcome_of(self._task)

    def _due(self, names: Iterable[str]) -> list[str]:
        now_s = self._clock.monotonic()
        last_s = {name: self._ages[name].read_s if name in self._ages else -1.0 for name in names}
        due = [name for name, read_s in last_s.items() if read_s < 0 or now_s - read_s >= self._pause_s]
        return sorted(due, key=lambda name: last_s[name])[:GROUPS_AT_ONCE]

    def _is_read(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("console_ages_failed", reason=f"{type(error).__name__}: {error}")

    async def _read(self, names: list[str]) -> None:
        began_s = self._clock.monotonic()
        waits = dict.fromkeys(names, UNKNOWN)
        unreached: set[str] = (
            set()
        )  # the next reading begins with the groups for whose round the time did not suffice
        try:
            positions = await self._late(names)
            waits.update((name, 0) for name, late in positions.items() if not late)
            behind = {name: late for name, late in positions.items() if late}
            rounds, groups_of = packed(behind)
            ages = await self._source.unread_ages_of(rounds) if rounds else []
            unreached = set(behind).difference(*groups_of[: len(ages)])
            for members, some in zip(groups_of, ages, strict=False):
                for name in members:
                    late = behind[name]
                    known = [some[tp] for tp in late if tp in some]
                    waits[name] = max([waits[name], *known])
        except OdradekError as error:
            _log.info("console_part_unreadable", reason=explain(error))
        now_s = self._clock.monotonic()
        self._pause_s = max(AGE_S, SHARE * (now_s - began_s))
        for name, waits_ms in waits.items():
            self._ages[name] = _KnownAge(waits_ms, began_s if name in unreached else now_s)
            self._ages.move_to_end(name)
        while len(self._ages) > KEPT_MAX:
            self._ages.popitem(last=False)

    async def close(self) -> None:
        """Ends a reading that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def packed(
    behind: Mapping[str, LatePositions],
) -> tuple[list[dict[TopicPartition, int]], list[list[str]]]:
    """Returns rounds of positions, and the groups whose positions each round has. A round has one position of a partition.

    Groups for which `ROUNDS_MAX` rounds leave no room are in no round: the next reading begins with them.
    """
    rounds: list[dict[TopicPartition, int]] = []
    groups_of: list[list[str]] = []
    for name, late in behind.items():
        for positions, members in zip(rounds, groups_of, strict=True):
            is_free = all(positions.get(tp, offset) == offset for tp, offset in late.items())
            if is_free and len(positions.keys() | late.keys()) <= PARTITIONS_MAX:
                positions.update(late)
                members.append(name)
                break
        else:
            if len(rounds) < ROUNDS_MAX:
                rounds.append(dict(late))
                groups_of.append([name])
    return rounds, groups_of
