"""Requests that are refused for good reason, by the thousand: what does a refusal leave behind, in memory and in the log?"""

from __future__ import annotations

import shutil
from typing import Final

from tests.hostile.attack import Attack, Stage
from tests.hostile.attacks.connections import produce_frame
from tests.hostile.figures import MEBIBYTE
from tests.interop.wire import int16, int32

from odradek.model.errors import ErrorCode
from odradek.protocol import decode_response
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic

_OFFLINE_TOPIC: Final = "offline"
_PRODUCE: Final = 0
_STRANGE: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    bytes.fromhex("16030100f8010000f40303") + bytes(40),
    int32(-1),
    int32(2**31 - 1),
    int32(12) + int16(999) + bytes(10),
    int32(12) + int16(3) + int16(99) + bytes(8),
    int32(14) + int16(3) + int16(4) + int32(1) + int16(-1) + int32(2**31 - 1),
    int32(40) + int16(0) + int16(9) + int32(1) + int16(-1) + bytes(30),
)


def _take_a_disk_away(stage: Stage) -> None:
    """The second log directory becomes a file: what it held is offline."""
    stage.create_topic(_OFFLINE_TOPIC, partitions=2)  # one in each directory
    broker = stage.victim
    broker.stop()
    gone = stage.home / "disk-2"
    shutil.rmtree(gone)
    gone.write_text("no directory\n")
    broker.start()
    broker.wait_until_ready()


def _produce_to_offline(stage: Stage) -> None:
    value_bytes = stage.scale.count(900_000, 200_000)
    frames = [produce_frame(_OFFLINE_TOPIC, value_bytes, partition=number) for number in (0, 1)]
    codes: set[int] = set()
    count = stage.scale.count(400, 100)
    with stage.connect() as peer:
        for _ in range(count):
            for frame in frames:
                peer.send(frame)
                _, response = decode_response(_PRODUCE, 8, peer.receive())
                codes.add(response.responses[0].partition_responses[0].error_code)
    stage.notes["error_codes"] = sorted(codes)
    offline = {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
    stage.must(bool(codes & offline), f"no partition was offline: {codes}")


def _strangers(stage: Stage) -> None:
    """Everything that is no Kafka, again and again."""
    for number in range(stage.scale.count(24_000, 4_000)):
        peer = stage.connect()
        try:
            peer.send(_STRANGE[number % len(_STRANGE)])
            if number % 50 == 0:
                stage.must(peer.is_closed_within(10.0), "a stranger's connection stays open")
        except OSError:
            continue
        finally:
            peer.close()


def _unknown_topics(stage: Stage) -> None:
    """Produces and lookups of what is not there."""
    frame = produce_frame("nowhere", 100)
    with stage.connect() as peer:
        for _ in range(stage.scale.count(20_000, 4_000) // 100):
            peer.send(frame * 100)
            for _ in range(100):
                peer.receive()
            peer.ask(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name="no where")], allow_auto_topic_creation=True
                ),
                8,
            )


ATTACKS: Final = (
    Attack(
        name="produces to an offline partition",
        brokers_in_short=(1,),
        claim="a refusal keeps nothing of the request it refused",
        run=_produce_to_offline,
        prepare=_take_a_disk_away,
        log_directories=("disk-1", "disk-2"),
        grown_bytes_max=64 * MEBIBYTE,
        kept_bytes_max=48 * MEBIBYTE,
    ),
    Attack(
        name="strangers' log lines",
        brokers_in_short=(1,),
        claim="what strangers send makes no more log than a limit for each cause allows",
        run=_strangers,
        log_bytes_max=MEBIBYTE // 4,
        grown_bytes_max=64 * MEBIBYTE,
    ),
    Attack(
        name="requests for what is not there",
        claim="thousands of requests for unknown topics leave no trace",
        run=_unknown_topics,
        grown_bytes_max=64 * MEBIBYTE,
    ),
)
