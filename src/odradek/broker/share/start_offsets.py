"""Where a share group begins in a partition that it has not read: `share.auto.offset.reset`."""

from __future__ import annotations

import re
from typing import Final

from odradek.groups.share.settings import ShareSettings
from odradek.replication.partition import Partition
from odradek.storage.segment.at_hand import ReadProgress

_DURATION: Final = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?\Z"
)
_UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def reset_offset(
    partition: Partition, settings: ShareSettings, now_wall_ms: int, beside: ReadProgress | None = None
) -> int:
    """The latest offset unless the group says otherwise. `beside` as in `Log.offset_for_timestamp`."""
    end_offset = partition.last_stable_offset if settings.committed_only else partition.high_watermark
    if settings.offset_reset == "earliest":
        return partition.start_offset
    duration_ms = duration_of(settings.offset_reset)
    if duration_ms is None:
        return end_offset
    timestamped_offset = partition.log.offset_for_timestamp(
        now_wall_ms - duration_ms, end_offset=end_offset, beside=beside
    )
    return end_offset if timestamped_offset is None else timestamped_offset.offset


def duration_of(reset: str) -> int | None:
    """Milliseconds of `by_duration:P1DT2H`; None for what is no duration."""
    match = _DURATION.match(reset)
    if match is None:
        return None
    return int(sum(float(number) * _UNIT_MS[unit] for unit, number in match.groupdict(default="0").items()))
