"""Records that are left out, of one batch of one task: lines of the log, and entries of the processing log. Both are bounded.

Entries go by a producer of their own, outside the transaction of the batch: what is wrong with the log stops no query. A batch
that is tried again writes them again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from odradek.dead_letters.processing_log import ENTRIES_MAX, ProcessingLog
from odradek.model.errors import OdradekError
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.spark.clients import connections

log: Final = logging.getLogger("odradek.spark")
_IMPATIENT: Final = {
    "max.block.ms": "5000",
    "delivery.timeout.ms": "10000",
    "request.timeout.ms": "5000",
    "linger.ms": "0",
}
"""A batch waits for the processing log at most so long."""


class LeftOutRecords:
    """The records that a task leaves out, as entries of the processing log.

    `add` for each, `close` after the last one. `where`: None when there is no processing log.
    """

    def __init__(
        self,
        where: ProcessingLog | None = None,
        client: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.count = 0
        self._where = where
        self._client = dict(client or {})
        self._clock = clock or SystemClock()
        self._entries: list[bytes] = []

    def add(self, failure_json: pa.Buffer) -> None:
        """Adds a failure. `failure_json` has the form of `passing`."""
        self.count += 1
        if self.count > ENTRIES_MAX:
            return
        failure = json.loads(failure_json.to_pybytes())
        origin = failure["origin"]
        coordinates = f"{origin['topic']}-{origin['partition']} offset {origin['offset']}"
        log.warning("left out: %s failed at %s: %s", failure["stage"], coordinates, failure["message"])
        if self._where is not None:
            entry = self._where.entry(failure, self._clock.wall_ms())
            if entry is not None:
                self._entries.append(entry)

    def close(self) -> None:
        """Writes the entries. An error is a line of the log."""
        beyond = self.count - ENTRIES_MAX
        if beyond > 0:
            log.warning("left out: %d more records of this batch", beyond)
        entries, where = self._entries, self._where
        if where is None or not entries:
            return
        if beyond > 0:
            entries.append(where.more(beyond, self._clock.wall_ms()))
        rows = pa.RecordBatch.from_pydict({"value": pa.array(entries, pa.binary())})
        try:
            with connections.sending({**self._client, **_IMPATIENT}) as producer:
                producer.send_arrow(where.topic, rows)
        except OdradekError as error:
            log.warning(
                "%d entries of the processing log %s were not written: %s", len(entries), where.topic, error
            )
