"""The rates that the benchmarks' own clients reach when the broker does nothing: the limit of every row of produce and consume.

    python -m benchmarks.broker.ready_answers [--rounds 3]

A server that keeps no log answers the same clients, with the same flags, as `python -m benchmarks.run` has for the brokers.
It reads each Produce request whole, looks at its partitions, and acknowledges it; it answers each Fetch with a batch that was
ready before the client asked. So no broker can be faster here, whatever it is written in: client and server share the machine.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE, Popen
from typing import Any, Final

from benchmarks import load
from benchmarks.broker import plain_requests
from benchmarks.measures import PARTITIONS, QUICK, READ_TIMES, value_name
from benchmarks.odradek_node import serve_environment
from benchmarks.watch import cpu_seconds
from odradek.protocol import APIS, Message, decode, decode_request_header, encode_response
from odradek.protocol.messages.data.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.data.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.messages.metadata.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC: Final = "ready"
NODE_ID: Final = 1
BATCH_BYTES: Final = 1 << 20
VERSIONS: Final[Mapping[int, tuple[int, int]]] = {0: (3, 8), 1: (4, 11), 2: (1, 5), 3: (1, 8), 18: (0, 3)}
"""The versions of each API that the server offers: those that name topics, and that every client of today knows."""
EMPTY_WAIT_S: Final = 0.01
_FRAME_BYTES_MAX: Final = 16 << 20
_SIZE: Final = struct.Struct(">i")
_BASE_OFFSET: Final = struct.Struct(">q")


class ReadyAnswers:
    """Answers of one topic whose partitions all have the same records. Threads of several connections may ask, but only one
    of them for records: a batch is sent from where it is changed."""

    def __init__(self, port: int, value_bytes: int, count: int) -> None:
        """`count` records are in the topic, `value_bytes` long each."""
        self._port = port
        self._in_batch = max(1, BATCH_BYTES // (value_bytes + 16))
        batch = plain_requests.batch(value_bytes, self._in_batch)
        self._batches = [bytearray(batch) for _ in range(PARTITIONS)]
        """A batch of each partition, whose base offset is that of the last answer: its checksum does not cover it."""
        self._end = -(-count // PARTITIONS)
        self._offset = 0
        self._answers: Final[Mapping[type[Message], Callable[[Any], Message | None]]] = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: self._metadata,
            ListOffsetsRequest: self._offsets,
            ProduceRequest: self._produced,
            FetchRequest: self._fetched,
        }

    def answer(self, message: Message) -> Message | None:
        """Returns the answer, or None for a Produce request that expects none."""
        return self._answers[type(message)](message)

    def _versions(self, message: ApiVersionsRequest) -> Message:
        offered = [
            ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in VERSIONS.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=offered)

    def _metadata(self, message: MetadataRequest) -> Message:
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=NODE_ID,
                replica_nodes=[NODE_ID],
                isr_nodes=[NODE_ID],
            )
            for index in range(PARTITIONS)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=self._port)],
            controller_id=NODE_ID,
            topics=[MetadataResponseTopic(error_code=0, name=TOPIC, partitions=partitions)],
        )

    def _offsets(self, message: ListOffsetsRequest) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=0,
                            offset=0 if partition.timestamp == -2 else self._end,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    def _produced(self, message: ProduceRequest) -> Message | None:
        if message.acks == 0:
            return None
        self._offset += 1_000_000  # of no partition's log: the clients do not look at it
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=data.index, error_code=0, base_offset=self._offset)
                        for data in topic.partition_data
                    ],
                )
                for topic in message.topic_data
            ]
        )

    def _fetched(self, message: FetchRequest) -> Message:
        data: list[FetchableTopicResponse] = []
        is_empty = True
        for topic in message.topics:
            partitions: list[PartitionData] = []
            for asked in topic.partitions:
                records = bytearray()
                if asked.fetch_offset < self._end:
                    is_empty = False
                    records = self._batches[asked.partition]
                    _BASE_OFFSET.pack_into(records, 0, asked.fetch_offset)
                partitions.append(
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=0,
                        high_watermark=self._end + self._in_batch,
                        last_stable_offset=self._end + self._in_batch,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=records,
                    )
                )
            data.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        if is_empty:
            time.sleep(EMPTY_WAIT_S)
        return FetchResponse(error_code=0, session_id=0, responses=data)


def serve(value_bytes: int, count: int) -> None:
    """Serves on a port of its own choice, which it prints, until its standard input ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        answers = ReadyAnswers(port, value_bytes, count)
        threading.Thread(target=_accept, args=[listening, answers], daemon=True).start()
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        sys.stdin.read()


def _accept(listening: socket.socket, answers: ReadyAnswers) -> None:
    while True:
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_converse, args=[connection, answers], daemon=True).start()


def _converse(connection: socket.socket, answers: ReadyAnswers) -> None:
    frame = memoryview(bytearray(_FRAME_BYTES_MAX))
    with connection, suppress(ConnectionError, EOFError):
        while True:
            _receive(connection, frame[: _SIZE.size])
            (size,) = _SIZE.unpack_from(frame)
            _receive(connection, frame[:size])
            header, position = decode_request_header(frame[:size])
            message, _ = decode(APIS[header.api_key].request, header.api_version, frame[:size], position)
            answer = answers.answer(message)
            if answer is not None:
                for chunk in encode_response(
                    header.api_key, header.api_version, header.correlation_id, answer
                ):
                    connection.sendall(chunk)


def _receive(connection: socket.socket, room: memoryview) -> None:
    while room:
        count = connection.recv_into(room, 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError
        room = room[count:]


def measured(value_bytes: int, count: int) -> dict[str, float]:
    """Returns MB/s of values, by what is done: one run of each client."""
    command = [sys.executable, "-m", __spec__.name, "--serve", str(value_bytes), str(count)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=serve_environment(), cwd=load.ROOT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        bootstrap = f"127.0.0.1:{int(server.stdout.readline())}"
        before = cpu_seconds(server.pid)
        produced = load.run_producer(bootstrap, TOPIC, count=count, value_bytes=value_bytes, acks="all")
        between = cpu_seconds(server.pid)
        consumed = [
            load.run_consumer(bootstrap, TOPIC, count=count, value_bytes=value_bytes)
            for _ in range(READ_TIMES)
        ]
        after = cpu_seconds(server.pid)
        server.stdin.close()
    read_bytes = sum(run.payload_bytes for run in consumed)
    return {
        "produce": produced.payload_bytes / produced.seconds / 1e6,
        "consume": read_bytes / sum(run.seconds for run in consumed) / 1e6,
        "produce: client CPU s per GB": produced.client_cpu_seconds / (produced.payload_bytes / 1e9),
        "produce: server CPU s per GB": (between - before) / (produced.payload_bytes / 1e9),
        "consume: client CPU s per GB": sum(run.client_cpu_seconds for run in consumed) / (read_bytes / 1e9),
        "consume: server CPU s per GB": (after - between) / (read_bytes / 1e9),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--count", type=int, help="records of a run, in place of those of the quick benchmark"
    )
    parser.add_argument("--serve", type=int, nargs=2, metavar=("BYTES", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(*options.serve)
        return 0
    print(f"load {os.getloadavg()[0]:.1f} before")
    print("| what | values | MB/s, median (lowest to highest) | client CPU s per GB | server CPU s per GB |")
    print("|---|---|---:|---:|---:|")
    for value_bytes, count in QUICK.counts.items():
        rounds = [measured(value_bytes, options.count or count) for _ in range(options.rounds)]
        for what in ("produce", "consume"):
            rates = sorted(figures[what] for figures in rounds)
            costs = [
                statistics.median(figures[f"{what}: {side} CPU s per GB"] for figures in rounds)
                for side in ("client", "server")
            ]
            print(
                f"| {what} | {value_name(value_bytes)} | {statistics.median(rates):,.0f} ({rates[0]:,.0f} to"
                f" {rates[-1]:,.0f}) | {costs[0]:.2f} | {costs[1]:.2f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
