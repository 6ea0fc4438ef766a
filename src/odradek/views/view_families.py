"""The metrics of views: how far each table is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.telemetry.metrics import Family, counter, gauge, labels
from odradek.views.aio import AsyncTableView
from odradek.views.freshness import Freshness, ViewStatus

PARTITIONS_MAX: Final = 1_000
"""The most partitions of one table that have series of their own."""
_SNAPSHOT_S: Final = 1.0


def view_families(views: Mapping[str, Freshness]) -> list[Family]:
    """Returns the families of tables by topic."""
    status = gauge("odradek_view_status", "1 for the state that a view is in.")
    lag = gauge("odradek_view_lag_offsets", "Offsets that a view has yet to apply, by its last look.")
    skipped = counter("odradek_view_records_skipped", "Records whose keys cannot be read.")
    of_partitions = gauge("odradek_view_partition_lag_offsets", "Offsets that a view has yet to apply.")
    applied = gauge("odradek_view_partition_applied_offset", "Every record below it is applied.")
    applied_at = gauge(
        "odradek_view_partition_applied_timestamp_seconds", "When the last record was applied, as Unix time."
    )
    for topic, freshness in views.items():
        for state in ViewStatus:
            status.add(int(freshness.status is state), labels(topic=topic, status=state.value))
        if freshness.lag is not None:
            lag.add(freshness.lag, labels(topic=topic))
        skipped.add(freshness.skipped_count, labels(topic=topic))
        for partition in freshness.partitions[:PARTITIONS_MAX]:
            text = labels(topic=topic, partition=partition.partition)
            applied.add(partition.applied_offset, text)
            if partition.lag is not None:
                of_partitions.add(partition.lag, text)
            if partition.applied_at_ms is not None:
                applied_at.add(partition.applied_at_ms / 1_000, text)
    return [status, lag, skipped, of_partitions, applied, applied_at]


class ViewSnapshots:
    """The freshness of views, taken on their event loop every second, for the thread of the metrics listener."""

    def __init__(self, views: Mapping[str, AsyncTableView]) -> None:
        self._views = views
        self._latest: Mapping[str, Freshness] = {topic: view.freshness() for topic, view in views.items()}

    def families(self) -> list[Family]:
        return view_families(self._latest)

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(_SNAPSHOT_S)
            self._latest = {topic: view.freshness() for topic, view in self._views.items()}
