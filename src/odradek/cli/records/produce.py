"""`odradek produce`: records from a file or from standard input."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

import click

from odradek import client
from odradek.cli.access import CLIENT_ID, check_reachable, connection_settings
from odradek.cli.moments import parse_timestamp
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, pairs, topic_argument, unescaped
from odradek.cli.output import bytes_text, print_json, remark
from odradek.cli.progress import progress_bar
from odradek.cli.records.input import FORMATS, InputFormat, InputRecord, parse_headers, read_records
from odradek.model.errors import KafkaError, OdradekError

if TYPE_CHECKING:
    from odradek.client import Producer
    from odradek.client.producer.delivery import Delivery

WAITING_MAX: Final = 100_000
"""Records whose fate is not known yet; beyond, the oldest is waited for."""
ABANDON_S: Final = 2.0
"""The seconds that records which were read before an error may still take."""


@click.command()
@topic_argument
@click.argument("file", required=False, default="-", type=click.Path(allow_dash=True))
@click.option(
    "--format",
    "-f",
    "format_",
    type=click.Choice(FORMATS),
    default="line",
    show_default=True,
    help=(
        "line, hex, base64: a record on each line. json: an object on each line, with key, value, headers, partition, "
        "timestamp (what `consume --json` prints). raw: all of the input is one value."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--key-separator", "-K", metavar="TEXT", help="The text between key and value in each line.")
@click.option("--key", "-k", metavar="TEXT", help="The key of every record that has none of its own.")
@click.option(
    "--header", "-H", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every record."
)
@click.option("--null", metavar="TEXT", help="The text of a key or value that becomes null.")
@click.option("--partition", "-p", type=Whole(min=0, bits=31), help="Send everything to this partition.")
@click.option("--timestamp", metavar="TIME", help="The timestamp of every record: ISO 8601 or milliseconds.")
@click.option(
    "--transactional-id",
    metavar="NAME",
    help="Send all of it in one transaction: readers of committed records see everything at once, or nothing.",
)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option(
    "--property",
    "-X",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any setting of a producer, by Kafka's name, such as linger.ms=50.",
)
@click.option("--progress/--no-progress", default=None, help="Show a progress bar; by default on a terminal.")
@click.option("--summary", is_flag=True, help="Print what was sent as JSON on standard output.")
@bootstrap_option
def produce(
    topic: str,
    file: str,
    format_: str,
    as_json: bool,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    null: str | None,
    partition: int | None,
    timestamp: str | None,
    transactional_id: str | None,
    acks: str,
    compression: str,
    properties: tuple[str, ...],
    progress: bool | None,
    summary: bool,
    bootstrap: str,
) -> None:
    """Send records to a topic, from a file or from standard input.

    \b
    odradek produce flights flights.csv
    seq 10 | odradek produce numbers
    odradek produce orders -K : <<< "order-1:paid"
    odradek consume orders --json --exit-at-end | odradek produce copy --json
    """
    now_ms = round(time.time() * 1000)
    shape = InputFormat(
        format="json" if as_json else format_,
        key_separator=unescaped(key_separator) if key_separator else None,
        null=null.encode() if null is not None else None,
        defaults=InputRecord(
            key=key.encode() if key is not None else None,
            headers=parse_headers(headers),
            partition=partition,
            timestamp_ms=parse_timestamp(timestamp, now_ms=now_ms) if timestamp else None,
        ),
    )
    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "acks": acks,
        "compression.type": compression,
        **connection_settings(),
        **({"transactional.id": transactional_id} if transactional_id else {}),
        **pairs(properties, "--property"),
    }
    shown = sys.stderr.isatty() and file != "-" if progress is None else progress
    with (
        _opened(file) as (lines, byte_count),
        progress_bar(topic, byte_count) if shown else nullcontext() as bar,
    ):
        check_reachable(bootstrap)
        counted = lines if bar is None else bar.counting(lines)
        sent = send_all(settings, topic, read_records(counted, shape, now_ms=now_ms))
    if summary:
        print_json({"topic": topic, **sent.as_json()})
    elif shown:
        remark(sent.text())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceSummary:
    """Counts what was acknowledged."""

    record_count: int
    byte_count: int
    """The bytes of keys and values."""
    seconds: float

    def as_json(self) -> dict[str, object]:
        return {"records": self.record_count, "bytes": self.byte_count, "seconds": self.seconds}

    def text(self) -> str:
        seconds = max(self.seconds, 1e-9)
        return (
            f"sent {self.record_count:,} records, {bytes_text(self.byte_count)}, in {self.seconds:.2f} s "
            f"({self.record_count / seconds:,.0f} records/s, {bytes_text(self.byte_count / seconds)}/s)"
        )


class NotDeliveredError(OdradekError):
    """A record was refused or got lost; the message names its line."""


def send_all(
    settings: Mapping[str, object], topic: str, records: Iterable[tuple[int, InputRecord]]
) -> ProduceSummary:
    """Send records and wait until all of them are acknowledged. NotDeliveredError for the first that is not."""
    started_at = time.monotonic()
    waiting: deque[tuple[int, Delivery]] = deque()
    record_count = byte_count = 0
    with (
        _closing(client.Producer.from_config(settings)) as producer,
        _whole(producer, bool(settings.get("transactional.id"))),
    ):
        for number, record in records:
            delivery = _send(producer, topic, number, record)
            waiting.append((number, delivery))
            record_count += 1
            byte_count += len(record.key or b"") + len(record.value or b"")
            while waiting and (len(waiting) > WAITING_MAX or waiting[0][1].done()):
                _settle(*waiting.popleft())
        with suppress(client.DeliveryError):  # what follows tells the same, with the line's number
            producer.flush()
        while waiting:
            _settle(*waiting.popleft())
    return ProduceSummary(
        record_count=record_count, byte_count=byte_count, seconds=time.monotonic() - started_at
    )


@contextmanager
def _closing(producer: Producer) -> Iterator[Producer]:
    """Close it: patiently after all went well, soon after Ctrl-C or an error."""
    try:
        yield producer
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            producer.close(timeout_s=ABANDON_S)
        raise
    producer.close()


@contextmanager
def _whole(producer: Producer, transactional: bool) -> Iterator[None]:
    """Sends everything in one transaction: all of it becomes visible at once, or nothing."""
    if not transactional:
        yield
        return
    producer.init_transactions()
    with producer.transaction():
        yield


def _send(producer: Producer, topic: str, number: int, record: InputRecord) -> Delivery:
    try:
        return producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
    except KafkaError as error:
        raise NotDeliveredError(f"line {number} was not delivered: {error}") from error


def _settle(number: int, delivery: Delivery) -> None:
    error = delivery.exception()
    if error is not None:
        raise NotDeliveredError(f"line {number} was not delivered: {error}") from error


@contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Yields the input, and its size where it has one."""
    if path == "-":
        yield sys.stdin.buffer, None
        return
    with open(path, "rb") as file:
        yield file, os.fstat(file.fileno()).st_size or None
