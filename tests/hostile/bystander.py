"""A well-behaved client in a process of its own: `python -m tests.hostile.bystander ADDRESSES TOPIC`.

Three lanes on connections of their own, twenty requests a second each: produces with acks=all, fetches of the topic's first
records, and heartbeats of a group's member. A line of JSON for each answer goes to standard output; the process ends when
standard input does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import Final

from tests.interop.wire import batch, records
from tests.kit.requests import fetch_request, produce_request
from tests.kit.wire import BlockingWire, parse_address

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic

PERIOD_SECONDS: Final = 0.05
_AGAIN_SECONDS: Final = 0.02
_ANSWER_SECONDS: Final = 30.0
_GROUP: Final = "bystanders"
_SESSION_MS: Final = 30_000


class RefusedError(Exception):
    """The broker answered, and not as it should; asked again, perhaps of another broker."""


class Lane(ABC):
    """One kind of request on one connection, again and again until `stopping` is set."""

    kind: str

    def __init__(self, addresses: str, topic: str, stopping: threading.Event) -> None:
        self._addresses = addresses.split(",")
        self._topic = topic
        self._stopping = stopping
        self._peer: BlockingWire | None = None
        self._attempts = 0

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            due = max(due + PERIOD_SECONDS, time.monotonic())
            self._stopping.wait(max(due - time.monotonic(), 0.0))
            trouble = self._until_answered()
            if not self._stopping.is_set():
                _tell({"kind": self.kind, "due": due, "done": time.monotonic(), "trouble": trouble})

    def _until_answered(self) -> list[str]:
        """What went wrong on the way to the answer."""
        trouble: list[str] = []
        while not self._stopping.is_set():
            try:
                if self._peer is None:
                    self._peer = self._connected()
                self._act(self._peer)
                return trouble
            except (OSError, RefusedError) as error:
                trouble.append(f"{type(error).__name__}: {error}")
                self._disconnect()
                self._stopping.wait(_AGAIN_SECONDS)
        self._disconnect()
        return trouble

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def _any_broker(self) -> BlockingWire:
        self._attempts += 1
        address = self._addresses[self._attempts % len(self._addresses)]
        return BlockingWire(parse_address(address), timeout_s=_ANSWER_SECONDS, client_id="bystander")

    def _leader(self) -> BlockingWire:
        with self._any_broker() as peer:
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False
            )
            response = peer.ask(asked, 8)
        partitions = response.topics[0].partitions
        leaders = [
            broker for broker in response.brokers if partitions and broker.node_id == partitions[0].leader_id
        ]
        if not leaders:
            raise RefusedError("the topic has no leader")
        return BlockingWire(
            (leaders[0].host, leaders[0].port), timeout_s=_ANSWER_SECONDS, client_id="bystander"
        )

    @abstractmethod
    def _connected(self) -> BlockingWire: ...

    @abstractmethod
    def _act(self, peer: BlockingWire) -> None:
        """Ask, and look at the answer. RefusedError when it is not what it should be."""


class ProduceLane(Lane):
    kind = "produce"

    def _connected(self) -> BlockingWire:
        return self._leader()

    def _act(self, peer: BlockingWire) -> None:
        request = produce_request(self._topic, batch(records(b"x" * 100), 1), timeout_ms=10_000)
        response = peer.ask(request, 8)
        _expect(response.responses[0].partition_responses[0].error_code)


class FetchLane(Lane):
    kind = "fetch"

    def _connected(self) -> BlockingWire:
        return self._leader()

    def _act(self, peer: BlockingWire) -> None:
        asked = fetch_request(self._topic, 0, min_bytes=0, partition_max_bytes=4096)
        partition = peer.ask(asked, 11).responses[0].partitions[0]
        _expect(partition.error_code)
        if not partition.records and partition.high_watermark > 0:
            raise RefusedError("the fetch found nothing, where there are records")


class HeartbeatLane(Lane):
    kind = "heartbeat"

    def __init__(self, addresses: str, topic: str, stopping: threading.Event) -> None:
        super().__init__(addresses, topic, stopping)
        self._member_id = ""
        self._generation_id = -1

    def _connected(self) -> BlockingWire:
        with self._any_broker() as peer:
            coordinator = peer.ask(FindCoordinatorRequest(key=_GROUP), 2)
        _expect(coordinator.error_code)
        peer = BlockingWire(
            (coordinator.host, coordinator.port), timeout_s=_ANSWER_SECONDS, client_id="bystander"
        )
        if not self._member_id:
            self._join(peer)
        return peer

    def _join(self, peer: BlockingWire) -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        joined = peer.ask(
            JoinGroupRequest(
                group_id=_GROUP,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS,
                protocol_type="consumer",
                protocols=protocols,
            ),
            3,
        )
        _expect(joined.error_code)
        share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        synced = peer.ask(
            SyncGroupRequest(
                group_id=_GROUP,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[share],
            ),
            1,
        )
        _expect(synced.error_code)
        self._member_id, self._generation_id = joined.member_id, joined.generation_id

    def _act(self, peer: BlockingWire) -> None:
        asked = HeartbeatRequest(
            group_id=_GROUP, generation_id=self._generation_id, member_id=self._member_id
        )
        code = peer.ask(asked, 1).error_code
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self._member_id = ""
        _expect(code)


def _expect(code: int) -> None:
    if code:
        raise RefusedError(ErrorCode(code).name)


def _tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    addresses, topic = sys.argv[1:3]
    stopping = threading.Event()
    lanes = [lane(addresses, topic, stopping) for lane in (ProduceLane, FetchLane, HeartbeatLane)]
    for lane in lanes:
        threading.Thread(target=lane.run, name=lane.kind, daemon=True).start()
    sys.stdin.read()
    stopping.set()


if __name__ == "__main__":
    main()
