"""The note of a truncation, when a log is opened: what a crash interrupted is done, and older checkpoints are void."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from odradek.runtime.ports import Disk
from odradek.storage.directories.checkpoints import BadCheckpointError
from odradek.storage.log.file_truncation import TruncationPlan, carry_out, read_plan, write_plan
from odradek.storage.recovery.context import Opening, log


class TruncationNoted(NamedTuple):
    """What holds of the checkpoints, which are of the time before a truncation."""

    opening: Opening
    """With what may be believed of them."""
    high_watermark_max: int
    """What a checkpoint says above it is of the time before."""


def finish_truncation(disk: Disk, opening: Opening) -> TruncationNoted:
    """For a log whose directory has a note of a truncation. The names of its files may be other ones afterwards."""
    directory = opening.directory
    plan: TruncationPlan | None = None
    try:
        plan = read_plan(disk, directory)
    except BadCheckpointError as error:
        log.warning("truncation_unreadable", directory=directory, reason=str(error))
    if plan is None:
        return TruncationNoted(_believe(opening, first_offset=None, recovery_point=0, end_offset=0), 0)
    if not plan.is_done:
        log.info("truncation_finished", directory=directory, end_offset=plan.end_offset)
        carry_out(disk, directory, plan)
        write_plan(disk, directory, replace(plan, is_done=True))
    first_offset = plan.base_offset if plan.starts_empty else opening.first_offset
    opening = replace(opening, start_offset=plan.start_offset)
    believed = _believe(
        opening, first_offset=first_offset, recovery_point=plan.recovery_point, end_offset=plan.end_offset
    )
    return TruncationNoted(believed, plan.high_watermark_max)


def _believe(opening: Opening, *, first_offset: int | None, recovery_point: int, end_offset: int) -> Opening:
    return replace(
        opening,
        clean=False,
        first_offset=first_offset,
        recovery_point=min(opening.recovery_point, recovery_point),
        durable_offset=min(opening.durable_offset, recovery_point),
        cleaned_offset=min(opening.cleaned_offset, end_offset),
    )
