"""The note of a truncation, when a log is opened: what a crash interrupted is done, and older checkpoints are void."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from odradek.runtime.ports import Disk
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.recovery.context import Opening, log
from odradek.storage.recovery.file_truncation import TruncationPlan, carry_out, read_plan, write_plan


class TruncationNoted(NamedTuple):
    """The parts of the checkpoints that are still valid; they are older than a truncation."""

    opening: Opening
    """The opening, with only the checkpoints' valid parts."""
    high_watermark_max: int
    """A checkpoint's high watermark above this offset is older than the truncation."""


def finish_truncation(disk: Disk, opening: Opening) -> TruncationNoted:
    """Finishes the truncation that a note in the log's directory describes. This may change the names of its files."""
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
