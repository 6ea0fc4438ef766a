"""Consumers of a simulated cluster. They read from leaders, or from followers, and check what they get."""

from __future__ import annotations

from typing import Final

from tests.simulation.broker.clients import RefusedError, SimulatedConsumer
from tests.simulation.cluster.clients import ClusterContext
from tests.simulation.ledger import Ledger, ReadRecord
from tests.simulation.record_source import RecordSource

from odradek.model.ids import TopicPartition
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

_BEHIND_COUNT_MAX: Final = 20


class ClusterConsumer(SimulatedConsumer):
    """`anywhere`: it asks any broker, whether it leads or not.

    The high watermark may be lower on the next broker, but not on one and the same connection.
    """

    def __init__(
        self, context: ClusterContext, partition: TopicPartition, ledger: Ledger, *, anywhere: bool = False
    ) -> None:
        super().__init__(context, partition, ledger)
        self._cluster = context
        self._anywhere = anywhere
        self._behind_count = 0
        if anywhere:
            self._version = context.rng.choice((11, 12, 13, 17))

    async def _connect(self) -> WireClient:
        self._high_watermark = 0
        return await (self._cluster.connect_to_any() if self._anywhere else super()._connect())

    async def read_all(self) -> None:
        self._high_watermark = 0
        await super().read_all()

    def _check_contents(self, value: list[ReadRecord], start_offset: int, end_offset: int) -> None:
        """Who led in the past may say that the partition ends early, but not for ever."""
        if end_offset < self._ledger.high_watermark and self._behind_count < _BEHIND_COUNT_MAX:
            self._behind_count += 1
            raise RefusedError("it ends too early")
        super()._check_contents(value, start_offset, end_offset)

    def _was_removed(self, offset: int) -> bool:
        """Who led in the past, or follows far behind, may not have what another has."""
        raise RefusedError("OFFSET_OUT_OF_RANGE")


class KeyedReader(ClusterConsumer):
    """Of a compacted partition: gaps are to be expected, and the last record of each key is not to be missed."""

    def __init__(
        self, context: ClusterContext, partition: TopicPartition, ledger: Ledger, sources: list[RecordSource]
    ) -> None:
        super().__init__(context, partition, ledger)
        self._sources = sources
        self._name = partition

    def _check_first(self, value: list[ReadRecord], offset: int) -> None:
        if value and value[0].offset < offset:
            raise ViolationError(f"{self._name}: a fetch at {offset} returned {value[0]}")

    def _check_contents(self, results: list[ReadRecord], start_offset: int, end_offset: int) -> None:
        self._ledger.observe(results, end_offset)
        check_newest(
            str(self._name), self._ledger, self._sources, {record.offset: record.value for record in results}
        )


def check_newest(where: str, ledger: Ledger, sources: list[RecordSource], present: dict[int, bytes]) -> None:
    """The newest record of each key, as the producers know it, is there; `present` is by offset. A tombstone may be gone, but
    then everything before it is, too."""
    for source in sources:
        newest: dict[bytes, tuple[int, bytes]] = {}
        for value, sent in ledger.sent.items():
            if sent.producer == source.name and value in ledger.acknowledged:
                key = source.key_of(sent.number)
                newest[key] = max(newest.get(key, (-1, b"")), (sent.number, value))
        for key, (number, value) in newest.items():
            offset = ledger.acknowledged[value]
            if present.get(offset) == value:
                continue
            if not source.is_tombstone(number):
                raise ViolationError(f"{where}: the newest of {key!r}, {value[:40]!r} at {offset}, is gone")
            for old, present_value in present.items():
                sent = ledger.sent[present_value]
                if old < offset and sent.producer == source.name and source.key_of(sent.number) == key:
                    raise ViolationError(
                        f"{where}: {present_value[:40]!r} at {old} was deleted at {offset}, and is there again"
                    )
