"""`LargeTargets` of a broker: the targets of its large groups, on the threads of the offload port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.groups.shard.large_targets import LargeTarget
from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Offload
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.groups.shard.machine import GroupMachine
    from odradek.shards import Shard

_log = events.caused_by_peers("groups")


class TargetWorker:
    """Computes the target assignments of large groups on threads: implements `LargeTargets`. Used on the event loop only.
    `shard_of` finds the shard that keeps a group, when the target is there."""

    def __init__(self, offload: Offload, shard_of: Callable[[str], Shard[GroupMachine]]) -> None:
        self._offload = offload
        self._shard_of = shard_of
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._too_large: dict[str, tuple[int, str]] = {}
        """Group -> the epoch whose target no batch can hold, and why. It is not worked out again for each heartbeat."""

    def is_wanted(self, group_id: str, epoch: int) -> bool:
        refused_epoch, reason = self._too_large.get(group_id, (-1, ""))
        if refused_epoch == epoch:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        return group_id not in self._under_way

    def begin(self, target: LargeTarget) -> None:
        self._too_large.pop(target.group_id, None)
        task = asyncio.get_running_loop().create_task(self._work(target), name="work out target")
        self._under_way[target.group_id] = task

    def close(self) -> None:
        """Drops the targets under way: the next coordinator works them out."""
        for task in self._under_way.values():
            task.cancel()

    async def _work(self, target: LargeTarget) -> None:
        try:
            shares = await self._offload.run(target.compute)
        except Exception:  # noqa: BLE001 - the root of a task: the next heartbeat asks for it once more
            _log.exception("target_not_worked_out", group=target.group_id)
            return
        finally:
            del self._under_way[target.group_id]
        try:
            await self._shard_of(target.group_id).execute(
                lambda machine, now: target.write(machine, now, shares)
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                self._too_large[target.group_id] = (target.epoch, error.message)
            _log.warning("target_not_written", group=target.group_id, reason=error.message)
