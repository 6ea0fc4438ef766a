"""How long after its process starts a broker has acknowledged a record, seen from a plain socket.

The client knocks every millisecond and asks again while the broker says "not yet": a client library's own back-off
would otherwise be most of what is measured.
"""

from __future__ import annotations

import socket
import struct
import time

from odradek.protocol import RequestHeader, decode_response, encode_request
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.records import BatchBuilder, Codec

KNOCK_SECONDS = 0.001
SECONDS_MAX = 60.0
_PRODUCE, _PRODUCE_VERSION = 0, 7
_METADATA, _METADATA_VERSION = 3, 4


def seconds_to_first_ack(address: tuple[str, int], topic: str, started: float) -> float:
    """Seconds from `started` (`time.perf_counter`) until the broker at `address` acknowledged a record (acks=all).

    Creates the topic by asking for it, as a client would, when it does not exist.
    """
    deadline = started + SECONDS_MAX
    produce, metadata = _produce_request(topic), _metadata_request(topic)
    while time.perf_counter() < deadline:
        try:
            with socket.create_connection(address, timeout=SECONDS_MAX) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while time.perf_counter() < deadline:
                    if _error_of(_asked(peer, produce)) == 0:
                        return time.perf_counter() - started
                    _asked(peer, metadata)
                    time.sleep(KNOCK_SECONDS)
        except OSError:
            time.sleep(KNOCK_SECONDS)
    raise TimeoutError(f"no record was acknowledged within {SECONDS_MAX:.0f} s")


def _asked(peer: socket.socket, request: bytes) -> bytes:
    peer.sendall(request)
    (size,) = struct.unpack(">i", _exactly(peer, 4))
    return _exactly(peer, size)


def _exactly(peer: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = peer.recv(count - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return bytes(parts)


def _error_of(answer: bytes) -> int:
    _, response = decode_response(_PRODUCE, _PRODUCE_VERSION, answer)
    code: int = response.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
    return code


def _produce_request(topic: str) -> bytes:
    builder = BatchBuilder(Codec.NONE)
    builder.append(int(time.time() * 1000), None, b"first", ())
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return encode_request(RequestHeader(_PRODUCE, _PRODUCE_VERSION, 1, "bench"), request)


def _metadata_request(topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    return encode_request(RequestHeader(_METADATA, _METADATA_VERSION, 2, "bench"), request)
