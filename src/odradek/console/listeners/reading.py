"""Reads the brokers' metrics listeners for all pages of a console: one scrape at a time, and none while no page wants one.

The metrics of a large cluster are many bytes, and its brokers work for each scrape. So a reading is kept for some seconds, and
for `SHARE` times what it took. It is the same for all users: `pages/traffic.py` decides who may see it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.console.listeners.figures import METRICS, ListenerFigures, SlowRequestRow, slow_requests_in
from odradek.console.model.access_reading import SharedReading
from odradek.console.model.snapshot import UNKNOWN
from odradek.model.errors import OdradekError
from odradek.net.listener_pages import ListenerAccess, ListenerAddress, ListenerPageError, page, read_page
from odradek.runtime.ports import Clock
from odradek.telemetry.scraped_metrics import MetricsSnapshot, ScrapedSamples

LISTENERS_MAX: Final = 100
AT_ONCE: Final = 4
"""The listeners that are read at the same time."""
PAGE_S: Final = 8.0
AGE_S: Final = 5.0
SHARE: Final = 10.0
RATES_S: Final = 90.0
"""A scrape that is older than this, and than two readings take, is no beginning for rates: they would be of long ago."""
SERIES_MAX: Final = 2_000
"""The series of one broker that are kept; a broker shows at most 40 clients, and 10 tokens."""
PAGE_BYTES_MAX: Final = 256 << 20
SLOW_BYTES_MAX: Final = 2 << 20
INFO_BYTES_MAX: Final = 64 << 10
_ID_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTerms:
    """The metrics listeners that a console reads, and how it gets in."""

    addresses: Sequence[ListenerAddress]
    access: ListenerAccess = field(default_factory=ListenerAccess)
    age_s: float = AGE_S
    """How long a reading is kept, at least."""


class SlowRequestList(NamedTuple):
    """The slow requests of all brokers, the newest first, and the reasons why some were not read."""

    rows: list[SlowRequestRow]
    problems: list[str]


class BrokerListeners:
    """The figures of all listeners. Used on the background loop; `figures.last` from any thread."""

    def __init__(self, terms: ListenerTerms, clock: Clock) -> None:
        self.terms: Final = terms
        self.figures: Final = SharedReading(self._figures, clock, terms.age_s, share=SHARE)
        self.slow: Final = SharedReading(self._slow, clock, terms.age_s, share=SHARE)
        self._clock = clock
        self._ids: dict[ListenerAddress, int] = {}
        """The broker at each address, as it was read once."""

    async def _figures(self) -> ListenerFigures:
        """Scrapes all listeners. It never fails: a listener that cannot be read is a problem of the reading."""
        slots = asyncio.Semaphore(AT_ONCE)
        began_s = self._clock.monotonic()
        problems: list[str] = []
        pages: dict[str, ScrapedSamples] = {}

        async def scrape(address: ListenerAddress) -> None:
            samples = ScrapedSamples(METRICS, series_max=SERIES_MAX)
            async with slots:
                try:
                    await self._read_id(address)
                    await read_page(
                        address,
                        "/metrics",
                        self.terms.access,
                        samples.feed,
                        bytes_max=PAGE_BYTES_MAX,
                        timeout_s=PAGE_S,
                    )
                except OdradekError as error:
                    problems.append(str(error))
                    return
            samples.end()
            pages[str(address)] = samples

        await asyncio.gather(*map(scrape, self.terms.addresses))
        by_broker = {
            str(address): pages[str(address)].by_name
            for address in self.terms.addresses
            if str(address) in pages
        }
        now = MetricsSnapshot(at_s=began_s, by_broker=by_broker)
        return ListenerFigures(
            now=now,
            before=self._before(began_s),
            brokers={str(address): broker_id for address, broker_id in self._ids.items()},
            problems=sorted(problems),
            left_out=sum(samples.left_out for samples in pages.values()),
        )

    def _before(self, now_s: float) -> MetricsSnapshot | None:
        """Returns the scrape before this one, unless it is too old."""
        last = self.figures.last
        if last is None:
            return None
        took_s = self._clock.monotonic() - now_s
        return last.now if now_s - last.now.at_s <= max(RATES_S, 2 * SHARE * took_s) else None

    async def _read_id(self, address: ListenerAddress) -> None:
        """Learns which broker has a listener, once. Raises ListenerPageError."""
        if address in self._ids:
            return
        content = await page(address, "/info", self.terms.access, bytes_max=INFO_BYTES_MAX, timeout_s=PAGE_S)
        try:
            described = json.loads(content)
        except (ValueError, RecursionError):
            raise ListenerPageError(
                f"{address} is no metrics listener of a broker: its page /info is no JSON"
            ) from None
        broker_id = described.get("node_id") if isinstance(described, dict) else None
        self._ids[address] = UNKNOWN
        if isinstance(broker_id, int) and 0 <= broker_id <= _ID_MAX:
            self._ids[address] = broker_id

    async def _slow(self) -> SlowRequestList:
        """Reads the slow requests of all brokers. It never fails."""
        slots = asyncio.Semaphore(AT_ONCE)
        problems: list[str] = []
        rows: list[SlowRequestRow] = []

        async def read(address: ListenerAddress) -> None:
            async with slots:
                try:
                    content = await page(
                        address, "/slow", self.terms.access, bytes_max=SLOW_BYTES_MAX, timeout_s=PAGE_S
                    )
                    rows.extend(slow_requests_in(str(address), content))
                except OdradekError as error:
                    problems.append(str(error))
                except ValueError as error:
                    problems.append(f"the page /slow of {address} cannot be read: {error}")

        await asyncio.gather(*map(read, self.terms.addresses))
        rows.sort(key=lambda row: (-row.at_ms, row.broker))
        return SlowRequestList(rows, sorted(problems))
