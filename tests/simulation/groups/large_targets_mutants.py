"""Planted bugs of targets that come late."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.broker.coordinators.target_worker import TargetWorker
from odradek.groups.modern.targets import TargetQuestion
from odradek.groups.shard.large_targets import LargeTarget

_SCENARIO = "large_targets"


@mutant("a target that was worked out for another group than it is now is written", _SCENARIO)
def late_target_is_written() -> Patches:
    yield patch.object(TargetQuestion, "__eq__", lambda self, other: True)


@mutant("a target that is not for the group any more is dropped, and no other one asked for", _SCENARIO)
def late_target_is_the_last() -> Patches:
    real = TargetWorker.begin
    begun: dict[str, int] = {}

    def begin(self: TargetWorker, target: LargeTarget) -> None:
        loop = id(asyncio.get_running_loop())
        if begun.setdefault(f"{loop} {target.group_id}", target.epoch) == target.epoch:
            real(self, target)

    yield patch.object(TargetWorker, "begin", begin)
