"""How long messages take to encode and decode, beside other Python codecs on the same bytes in the same run.

    python benchmarks/codec_messages.py [--rounds N] [--json FILE]

Peers: kafka-python's own codec, and kio where it is installed. Rounds of all of them are interleaved; the table shows
our median time and, for each peer, how many times as long it took: median, and in brackets the lowest and highest
ratio of any round. Processor time counts,
and garbage collection is held back meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import json
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from odradek.protocol import Message, RequestHeader, decode, decode_request_header, encode, encode_chunks
from odradek.protocol.headers import encode_request
from odradek.protocol.messages.data.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.metadata.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ROUND_SECONDS = 0.02
TOPIC_ID = UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to time: the same work by several codecs, ours first."""

    name: str
    work: dict[str, Work]


def metadata() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=4, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for index in range(10)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.org", port=9092) for n in (1, 2, 3)
        ],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[
            MetadataResponseTopic(name=f"topic-number-{number}", topic_id=TOPIC_ID, partitions=partitions)
            for number in range(50)
        ],
    )


def messages() -> list[tuple[str, Message, int]]:
    """(what it is, message, version)."""
    batch = bytes(16 * 1024)
    produce_datas = [
        TopicProduceData(name="flights", partition_data=[PartitionProduceData(index=0, records=batch)])
    ]
    done = [
        TopicProduceResponse(
            name="flights", partition_responses=[PartitionProduceResponse(base_offset=9, log_start_offset=0)]
        )
    ]
    wanted = [FetchPartition(partition=n, fetch_offset=10**9, partition_max_bytes=1 << 20) for n in range(10)]
    result = [
        PartitionData(partition_index=n, high_watermark=10**9, last_stable_offset=10**9, records=bytes(65536))
        for n in range(10)
    ]
    empty = [PartitionData(partition_index=n, high_watermark=10**9, records=b"") for n in range(10)]
    return [
        ("Metadata response, 50 topics x 10 partitions", metadata(), 12),
        (
            "Produce request, one batch of 16 KiB",
            ProduceRequest(acks=-1, timeout_ms=30000, topic_data=produce_datas),
            9,
        ),
        ("Produce response, one partition", ProduceResponse(responses=done), 9),
        (
            "Fetch request, 10 partitions",
            FetchRequest(topics=[FetchTopic(topic="flights", partitions=wanted)]),
            12,
        ),
        (
            "Fetch response, 10 partitions x 64 KiB",
            FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=result)]),
            12,
        ),
        (
            "Fetch response, 10 empty partitions",
            FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=empty)]),
            12,
        ),
        (
            "ApiVersions response, 50 APIs",
            ApiVersionsResponse(api_keys=[ApiVersion(api_key=key, max_version=9) for key in range(50)]),
            3,
        ),
    ]


def kafka_python_classes() -> dict[str, Any]:
    """Message name -> class of kafka-python; empty when it is not installed."""
    result: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module in ("consumer.fetch", "metadata.metadata", "metadata.api_versions", "producer.produce"):
            try:
                result |= vars(importlib.import_module(f"kafka.protocol.{module}"))
            except ImportError:
                return {}
    return result


def kafka_python(
    message: Message, version: int, encoded: bytes, classes: dict[str, Any]
) -> tuple[Work, Work]:
    cls = classes[type(message).__name__]
    theirs = cls.decode(encoded, version=version)
    theirs._header = None
    return lambda: theirs.encode(version=version), lambda: cls.decode(encoded, version=version)


def kio(message: Message, version: int, encoded: bytes) -> tuple[Work, Work] | None:
    """kio's codec for the message, if kio is installed."""
    kind, name = ("response", "Response") if "Response" in type(message).__name__ else ("request", "Request")
    api = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(message).__name__.removesuffix(name))[
        1:
    ]
    try:
        from kio.serial import entity_reader, entity_writer

        module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    except ImportError:
        return None
    cls = getattr(module, type(message).__name__)
    reader, writer = entity_reader(cls), entity_writer(cls)
    theirs = reader(encoded, 0)[0]

    def write() -> bytes:
        buffer = io.BytesIO()
        writer(buffer, theirs)
        return buffer.getvalue()

    return write, lambda: reader(encoded, 0)


def cases() -> list[Case]:
    classes = kafka_python_classes()
    result = []
    for name, message, version in messages():
        encoded = encode(message, version)
        view = memoryview(bytearray(encoded))
        encoders: dict[str, Work] = {"odradek": lambda m=message, v=version: encode_chunks(m, v)}  # type: ignore[misc]
        decoders: dict[str, Work] = {
            "odradek": lambda m=message, v=version, b=view: decode(type(m), v, b)  # type: ignore[misc]
        }
        if classes:
            encoders["kafka-python"], decoders["kafka-python"] = kafka_python(
                message, version, encoded, classes
            )
        pair = kio(message, version, encoded)
        if pair:
            encoders["kio"], decoders["kio"] = pair
        result += [Case(name=f"encode {name}", work=encoders), Case(name=f"decode {name}", work=decoders)]
    header = encode_request(RequestHeader(1, 12, 7, "some-client"), FetchRequest())[4:]
    result.append(Case(name="decode request header", work={"odradek": lambda: decode_request_header(header)}))
    return result


def seconds_each(work: Work, repeat: int) -> float:
    gc.collect()
    gc.disable()  # a collection would hit the code that runs when it falls due
    start = time.process_time()
    for _ in range(repeat):
        work()
    elapsed = time.process_time() - start
    gc.enable()
    return elapsed / repeat


def measure(case: Case, rounds: int) -> dict[str, list[float]]:
    """Processor seconds per call for each codec in each round."""
    repeats = {who: max(1, int(ROUND_SECONDS / seconds_each(work, 20))) for who, work in case.work.items()}
    times: dict[str, list[float]] = {who: [] for who in case.work}
    for _ in range(rounds):
        for who, work in case.work.items():
            times[who].append(seconds_each(work, repeats[who]))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="also write all times, in seconds, to this file")
    options = parser.parse_args()
    results = {}
    for case in cases():
        times = results[case.name] = measure(case, options.rounds)
        ours = times["odradek"]
        line = f"{case.name:<55} {statistics.median(ours) * 1e6:9.2f} us"
        for who in list(times)[1:]:
            ratios = [theirs / our for theirs, our in zip(times[who], ours, strict=True)]
            line += f"   {who} x{statistics.median(ratios):.1f} [{min(ratios):.1f}-{max(ratios):.1f}]"
        print(line)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
