"""A hundred thousand small requests in one breath, on one connection: all are answered, in order, and others go first."""

from __future__ import annotations

import struct
import threading
from typing import Final

from tests.hostile.attack import TARGET_TOPIC, Attack, Stage
from tests.kit.wire import BlockingWire, request_frame

from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic

_BLOCK: Final = 1000
_CORRELATION: Final = struct.Struct(">i")
_POSITION: Final = 8
"""Of the correlation id in a request with its size in front."""


def _attack(stage: Stage) -> None:
    count = stage.scale.count(100_000, 5_000)
    frames = [
        request_frame(ApiVersionsRequest(), 0),
        request_frame(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=TARGET_TOPIC)], allow_auto_topic_creation=False
            ),
            8,
        ),
        request_frame(FindCoordinatorRequest(key="hostile"), 2),
    ]
    with stage.connect(timeout_s=60.0) as peer:
        sender = threading.Thread(target=_send, args=(peer, frames, count), daemon=True)
        sender.start()
        answered = 0
        while answered < count:
            (correlation_id,) = _CORRELATION.unpack_from(peer.receive())
            if correlation_id != answered:
                stage.must(False, f"answer {correlation_id} came where {answered} was due")
                break
            answered += 1
        sender.join()
    stage.notes["answered"] = f"{answered:,} of {count:,}"


def _send(peer: BlockingWire, frames: list[bytes], count: int) -> None:
    for start in range(0, count, _BLOCK):
        block = bytearray()
        for number in range(start, min(start + _BLOCK, count)):
            position = len(block)
            block += frames[number % len(frames)]
            _CORRELATION.pack_into(block, position + _POSITION, number)
        peer.send(bytes(block))


ATTACKS: Final = (
    Attack(
        name="pipelined requests",
        brokers_in_short=(1,),
        claim="100,000 requests at once are answered in order, and others are answered between them",
        run=_attack,
        brokers=(1, 3),
    ),
)
