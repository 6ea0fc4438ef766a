"""Groups of which every target after the first is large: it is worked out on another thread, comes late, and finds a group that
may have changed, or a coordinator that is another one by then.

Odd seeds have a consumer group (KIP-848), even ones a share group (KIP-932); what happens, and what must hold, is what their
own scenarios say.
"""

from __future__ import annotations

import asyncio
from typing import Final
from unittest.mock import patch

from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.consumer_group_scenario import run_consumer_groups
from tests.simulation.share.scenario import run_shares

from odradek.broker.coordinators.target_worker import TargetWorker
from odradek.groups.shard import large_targets
from odradek.groups.shard.large_targets import LargeTarget
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.world import World

_LATE_S_MAX: Final = (0.0, 0.5, 2.0)


def run_large_targets(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    rng = stream(seed, "late targets")
    late_s_max = rng.choice(_LATE_S_MAX)
    real = TargetWorker._work

    async def work(self: TargetWorker, target: LargeTarget) -> None:
        await asyncio.sleep(rng.uniform(0.0, late_s_max))  # all threads are busy
        await real(self, target)

    run = run_consumer_groups if seed % 2 else run_shares
    with patch.object(large_targets, "AT_ONCE_MAX", 0), patch.object(TargetWorker, "_work", work):
        run(world, seed, plan)
