"""The first page: what is wrong, the cluster as a picture, brokers and disks, the largest topics."""

from __future__ import annotations

import heapq
from typing import Final

from starlette.responses import Response

from odradek.console.listeners.figures import healing_plan, listener_troubles
from odradek.console.model.snapshot import UNKNOWN, ModelSnapshot
from odradek.console.pages.traffic import known_figures
from odradek.console.pictures.bars import broker_bars, racks_of, used_length
from odradek.console.pictures.treemap import treemap
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit

LARGEST_MAX: Final = 24
TROUBLES_MAX: Final = 50
MENDED_MAX: Final = 5


async def show(visit: Visit) -> Response:
    """Shows the overview, from the model and from the last scrape of the metrics listeners."""
    await visit.wait_until_read()
    snapshot = visit.snapshot
    figures = await known_figures(visit)
    troubles = [*visit.model.troubles(), *listener_troubles(figures)]
    troubles.sort(key=lambda trouble: -trouble.level)
    line, now_ms = visit.model.time_line, visit.console.clock.wall_ms()
    await visit.run(visit.model.reassignments.begin())
    return visit.render(
        "overview.html",
        mended=[(event, max(0, (now_ms - event.at_ms) / 1000)) for event in line.mended(MENDED_MAX)],
        watched_s=None if line.since_ms < 0 else max(0, (now_ms - line.since_ms) / 1000),
        healing=healing_plan(figures),
        moving=visit.model.reassignments.last or 0,
        catching_up=[broker for broker in snapshot.brokers if broker.is_alive and broker.out_of_sync],
        active="overview",
        unread=[part for part, reading in snapshot.readings.items() if reading.is_awaited],
        troubles=troubles[:TROUBLES_MAX],
        troubles_left_out=max(0, len(troubles) - TROUBLES_MAX),
        racks=racks_of(snapshot.brokers),
        bars=broker_bars(snapshot.brokers),
        used_length=used_length,
        busy=figures.busy_brokers(),
        held_bytes=sum(snapshot.sizes.values()) if snapshot.sizes else UNKNOWN,
        alive=sum(broker.is_alive for broker in snapshot.brokers),
        tiles=treemap(_largest(snapshot)),
    )


def _largest(snapshot: ModelSnapshot) -> list[tuple[str, int]]:
    return [
        pair
        for pair in heapq.nlargest(LARGEST_MAX, snapshot.sizes.items(), key=lambda pair: (pair[1], pair[0]))
        if pair[1] > 0
    ]


PAGES: Final = (ConsolePage(path="/", show=show),)
