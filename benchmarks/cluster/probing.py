"""When a write is acknowledged again, seen by a client that never waits: it asks who leads, writes there, and asks again.

A client library has its own back-off, which would be most of what is measured. This one tries every few milliseconds.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from benchmarks.cluster.blocking_client import BlockingClient
from benchmarks.cluster.nodes import BROKERS, Cluster
from odradek.model.errors import KafkaError
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.records import BatchBuilder, Codec

_KNOCK_SECONDS: Final = 0.005
_PRODUCE_VERSION: Final = 7
_TIMEOUT_MS: Final = 30_000


class ProbeWriter:
    """Writes to partition 0 of a topic from a thread of its own, until `stop` is called; `begin` it, then `since`."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._addresses = {broker: cluster.address(broker) for broker in BROKERS}
        self._topic = topic
        self._request = _request(topic)
        self._askers: dict[int, BlockingClient] = {}
        self._acknowledged: list[tuple[float, float]] = []
        """When each was sent, and when it was acknowledged."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        for asker in self._askers.values():
            asker.close()

    def since(self, moment: float) -> float | None:
        """Seconds from `moment` to the first acknowledgement of what was sent later; None when there was none yet."""
        for sent, acknowledged in self._acknowledged:
            if sent >= moment:
                return acknowledged - moment
        return None

    def _run(self) -> None:
        leader = BROKERS[0]
        while not self._is_over.is_set():
            sent = time.perf_counter()
            try:
                answer = self._asker(leader).ask("Produce", _PRODUCE_VERSION, self._request)
                code = answer.responses[0].partition_responses[0].error_code
            except (OSError, KafkaError):
                code = -1
                self._drop(leader)
            if code == 0:
                self._acknowledged.append((sent, time.perf_counter()))
            else:
                leader = self._leader(leader)
            self._is_over.wait(_KNOCK_SECONDS)

    def _leader(self, last: int) -> int:
        """As another broker than the last leader says, if one says anything."""
        for broker in sorted(BROKERS, key=lambda item: item == last):
            try:
                partitions = self._asker(broker).partitions(self._topic)
            except (OSError, KafkaError):
                self._drop(broker)
                continue
            if partitions and partitions[0].leader_id in BROKERS:
                return int(partitions[0].leader_id)
        return last

    def _asker(self, broker: int) -> BlockingClient:
        asker = self._askers.get(broker)
        if asker is None:
            asker = self._askers[broker] = BlockingClient(self._addresses[broker])
        return asker

    def _drop(self, broker: int) -> None:
        asker = self._askers.pop(broker, None)
        if asker is not None:
            asker.close()


def _request(topic: str) -> ProduceRequest:
    builder = BatchBuilder(Codec.NONE)
    builder.append(int(time.time() * 1000), None, b"probe", ())
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    return ProduceRequest(
        acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
