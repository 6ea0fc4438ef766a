"""Logs that are made at the same time are made together: on one thread, in step, so that they share the syncs."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from odradek.runtime.ports import Offload
from odradek.storage.directories.offloaded_rounds import OffloadedRounds
from odradek.storage.files.steps import Steps, carry_out_together

T = TypeVar("T")

_PORTION: Final = 16
"""How many creations one task carries out together."""


class LogCreationBatch:
    """Creates logs together that are asked for in the same round of the event loop, on which it is used."""

    def __init__(self, offload: Offload) -> None:
        self._rounds: Final[OffloadedRounds[Steps[Any], Any]] = OffloadedRounds(
            offload, carry_out_together, portion=_PORTION
        )

    async def carry_out(self, steps: Steps[T]) -> T:
        """Runs the steps on another thread, together with others of this round, and returns their outcome."""
        outcome: T = await self._rounds.carry_out(steps)
        return outcome
