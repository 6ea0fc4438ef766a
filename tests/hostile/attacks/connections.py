"""Connections that hold on to something: unfinished frames, answers no one reads, sockets whose client left."""

from __future__ import annotations

import struct
import time
from functools import partial
from typing import Final

from tests.hostile.attack import Attack, Stage, in_parallel
from tests.hostile.figures import MEBIBYTE
from tests.interop.wire import batch, records
from tests.kit.requests import fetch_request, produce_request
from tests.kit.waiting import seconds_until
from tests.kit.wire import BlockingWire, request_frame

from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.quotas.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)

_BULK_TOPIC: Final = "bulk"
_FRAME_BYTES: Final = 64 * MEBIBYTE
_PIECE: Final = bytes(MEBIBYTE)
_MUTED: Final = "muted"
_LEFT_SECONDS: Final = 12.0


def produce_frame(topic: str, value_bytes: int, *, partition: int = 0, client_id: str = "hostile") -> bytes:
    """A Produce v8, acks=all, of one record of zeros."""
    content = batch(records(bytes(value_bytes)), 1)
    asked = produce_request(topic, content, partition=partition, timeout_ms=30_000)
    return request_frame(asked, 8, client_id=client_id)


def _unfinished(stage: Stage) -> None:
    """Forty frames, of which the last bytes never come."""
    count, sent_bytes = stage.scale.count(40, 16), 60 * MEBIBYTE
    start = struct.pack(">i", _FRAME_BYTES) + produce_frame("bulk", 10)[4:40]
    peers = [stage.connect(timeout_s=stage.scale.count(8, 3)) for _ in range(count)]
    try:
        late = in_parallel([partial(_send_slowly, peer, start, sent_bytes) for peer in peers], 60.0)
        stage.notes["senders_still_at_it"] = late
        time.sleep(stage.scale.count(5, 1))
        with stage.connect(timeout_s=20.0) as other:  # later clients are served
            other.ask(ApiVersionsRequest(), 0)
            other.send(produce_frame("target", 500_000))
            other.receive()
    finally:
        for peer in peers:
            peer.abandon()


def _send_slowly(peer: BlockingWire, start: bytes, sent_bytes: int) -> None:
    try:
        peer.send(start)
        for _ in range(0, sent_bytes, len(_PIECE)):
            peer.send(_PIECE)
    except OSError:
        return  # the broker stops reading, or hangs up: both are its right


def _prepare_bulk(stage: Stage) -> None:
    stage.create_topic(_BULK_TOPIC)
    frame = produce_frame(_BULK_TOPIC, 900_000)
    with stage.connect() as peer:
        for _ in range(60):
            peer.send(frame)
            peer.receive()


def _never_reading(stage: Stage) -> None:
    """They ask for everything there is, and never read an answer. The bystander's fetches must find their records."""
    most = 50 * MEBIBYTE
    asked = fetch_request(_BULK_TOPIC, 0, min_bytes=0, max_bytes=most, partition_max_bytes=most)
    frame = request_frame(asked, 11)
    peers = [stage.connect(receive_buffer_bytes=4096) for _ in range(12)]
    try:
        for peer in peers:
            peer.send(frame * 4)
        time.sleep(stage.scale.count(10, 3))
    finally:
        for peer in peers:
            peer.abandon()


def _slow_senders(stage: Stage) -> None:
    """Frames that come byte by byte."""
    frame = produce_frame("target", 50)
    peers = [stage.connect() for _ in range(stage.scale.count(400, 100))]
    try:
        for byte in frame[: stage.scale.count(120, 40)]:
            for peer in peers:
                peer.send(bytes([byte]))
            time.sleep(0.05)
    finally:
        for peer in peers:
            peer.abandon()


def _mute(stage: Stage) -> None:
    entity = [EntityData(entity_type="client-id", entity_name=_MUTED)]
    asked = AlterClientQuotasRequest(
        entries=[EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1.0)])]
    )
    with stage.connect() as peer:
        response = peer.ask(asked, 1)
    assert response.entries[0].error_code == 0, response


def _leave_while_muted(stage: Stage) -> None:
    """Throttled clients that give up: their sockets must not wait for the end of the throttling."""
    frame = produce_frame("target", 20_000, client_id=_MUTED)
    peers = [stage.connect() for _ in range(stage.scale.count(400, 100))]
    for peer in peers:
        peer.send(frame)
    for peer in peers:
        peer.receive()
    for peer in peers:
        peer.send(frame[:100])  # the broker does not read it now
    time.sleep(0.5)
    for peer in peers:
        peer.close()
    seconds = seconds_until(lambda: stage.figures().close_wait_count == 0, _LEFT_SECONDS)
    left = stage.figures().close_wait_count
    stage.notes["seconds_until_closed"] = None if seconds is None else round(seconds, 2)
    stage.must(
        seconds is not None, f"{left} sockets in CLOSE_WAIT {_LEFT_SECONDS:.0f} s after their clients left"
    )


def _come_and_go(stage: Stage) -> None:
    """Connections that are opened and shut at once, with a reset or without."""
    for number in range(stage.scale.count(3000, 1000)):
        peer = stage.connect()
        if number % 3 == 0:
            peer.send(b"\0\0")
        if number % 2:
            peer.abandon()
        else:
            peer.close()


ATTACKS: Final = (
    Attack(
        name="requests never finished",
        brokers_in_short=(1,),
        claim="frames that are never finished share a budget, and the memory goes back",
        run=_unfinished,
        grown_bytes_max=600 * MEBIBYTE,
    ),
    Attack(
        name="fetchers that never read",
        brokers_in_short=(1,),
        claim="who does not read the answers pays alone: others' fetches find their records",
        run=_never_reading,
        prepare=_prepare_bulk,
    ),
    Attack(
        name="slow senders",
        claim="hundreds of frames that come byte by byte hold up no one",
        run=_slow_senders,
    ),
    Attack(
        name="muted clients that leave",
        brokers_in_short=(1,),
        claim="a throttled client that leaves keeps no socket until the throttling is over",
        run=_leave_while_muted,
        prepare=_mute,
    ),
    Attack(
        name="connections come and go",
        claim="thousands of connections that do nothing leave nothing",
        run=_come_and_go,
    ),
)
