"""Planted bugs of share groups (KIP-932): what such brokers could get wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.broker.share.partitions import LivePartition
from odradek.groups.share import partition as partition_module
from odradek.groups.share import state as state_module
from odradek.groups.share.partition import AcknowledgedRange, RecordState, SharePartition, StateBatch
from odradek.groups.share.state import ShareStates
from odradek.groups.share.state_formats import ShareUpdateValue
from odradek.shards import Outcome

_SCENARIO = "shares"
_InFlight = partition_module._InFlight


@mutant("an acknowledgement is answered before it is durable", _SCENARIO)
def acknowledged_from_memory() -> Patches:
    real = LivePartition.acknowledge

    def acknowledge(self: LivePartition, member_id: str, ranges: Sequence[AcknowledgedRange]) -> None:
        real(self, member_id, ranges)

    yield patch.object(LivePartition, "acknowledge", acknowledge)


@mutant("what is written counts as kept, whatever happens to it", _SCENARIO)
def refused_write_unnoticed() -> Patches:
    def refuse(self: LivePartition, kept: asyncio.Future[None], error: BaseException) -> None:
        if not kept.done():
            kept.set_result(None)

    yield patch.object(LivePartition, "_refuse", refuse)


@mutant("a restart forgets what was acknowledged since the last snapshot", _SCENARIO)
def updates_not_replayed() -> Patches:
    def replay(self: ShareStates, place: Any, record: Any, value: ShareUpdateValue) -> None:
        return None

    yield patch.object(ShareStates, "_replay_update", replay)


@mutant("locks of records never end", _SCENARIO)
def locks_never_end() -> Patches:
    def locked(self: LivePartition) -> None:
        return None

    def released(self: LivePartition, member_id: str) -> None:
        return None

    yield patch.object(LivePartition, "locked", locked)
    yield patch.object(LivePartition, "release", released)


@mutant("a record that comes back is given away again, however often it was", _SCENARIO)
def no_delivery_limit() -> Patches:
    def back(self: SharePartition, state: Any, offset: int) -> Any:
        return _InFlight(RecordState.AVAILABLE, state.delivery_count)

    yield patch.object(SharePartition, "_back", back)


@mutant("a record that came back counts as delivered for the first time", _SCENARIO)
def deliveries_not_counted() -> Patches:
    real = SharePartition._back

    def back(self: SharePartition, state: Any, offset: int) -> Any:
        given_back = real(self, state, offset)
        return _InFlight(given_back.state, 0) if given_back.state is RecordState.AVAILABLE else given_back

    yield patch.object(SharePartition, "_back", back)


@mutant("the window moves on over records that came back", _SCENARIO)
def window_skips_what_came_back() -> Patches:
    def advance(self: SharePartition) -> None:
        while self._window and (
            self._window[0].is_settled
            or (self._window[0].state is RecordState.AVAILABLE and self._window[0].delivery_count)
        ):
            self._window.popleft()
            self.start_offset += 1

    yield patch.object(SharePartition, "_advance", advance)


@mutant("what was rejected comes again", _SCENARIO)
def rejected_comes_again() -> Patches:
    real = SharePartition._batches

    def batches(self: SharePartition, offsets: Sequence[int]) -> list[StateBatch]:
        return [batch for batch in real(self, offsets) if batch.state is not RecordState.ARCHIVED]

    yield patch.object(SharePartition, "_batches", batches)


@mutant("a snapshot leaves out what lies above the start", _SCENARIO)
def snapshot_without_batches() -> Patches:
    real = state_module._snapshot

    def snapshot(place: Any, state: Any, now: Any) -> Any:
        return real(place, replace(state, batches=()), now)

    yield patch.object(state_module, "_snapshot", snapshot)


@mutant("what a restart needs of the state's log is deleted", _SCENARIO)
def pruned_too_far() -> Patches:
    def needed_from(self: ShareStates, now: Any) -> Outcome[int | None]:
        return Outcome(max((state.snapshot_offset for state in self._states.values()), default=None))

    yield patch.object(ShareStates, "needed_from", needed_from)
