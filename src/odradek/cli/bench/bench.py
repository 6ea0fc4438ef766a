"""`odradek bench`: how fast a cluster is, seen from this machine with the Python client. Works with any Kafka."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import click

from odradek import client
from odradek.cli.access import check_reachable, connection_settings, open_admin
from odradek.cli.bench import pictures, runs
from odradek.cli.numbers import Real, Whole
from odradek.cli.options import bootstrap_option, complete_topics, json_option, pairs
from odradek.cli.output import bytes_text, print_json, remark, say, say_in_place
from odradek.model.aliases import Json
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.ids import TopicPartition

if TYPE_CHECKING:
    from odradek.cli.bench.runs import Measured
    from odradek.client import Admin

CLIENT_ID: Final = "odradek-bench"
FILL_RECORDS: Final = 500_000
SECONDS: Final = 10.0
SIZE: Final = 1024
WARM_SECONDS: Final = 1.0
_MOMENT_BYTES: Final = 8
Command = TypeVar("Command", bound=Callable[..., object])


@click.group()
def bench() -> None:
    """Measure how fast a cluster is, from this machine.

    Each command makes a topic of its own and deletes it, unless --topic names one. The Python client is part of what is
    measured: for the limits of a broker, run several at once.
    """


def _shared_options(command: Command) -> Command:
    for decorate in (
        bootstrap_option,
        json_option,
        click.option(
            "--property",
            "-X",
            "properties",
            metavar="KEY=VALUE",
            multiple=True,
            help="Any setting of the client, by Kafka's name, such as linger.ms=5.",
        ),
        click.option(
            "--replication-factor",
            type=Whole(min=1, bits=15),
            help="The replicas of the topic that it makes.",
        ),
        click.option(
            "--partitions",
            type=Whole(min=1, max=10_000),
            default=1,
            show_default=True,
            help="The partitions of the topic that it makes.",
        ),
        click.option(
            "--topic",
            metavar="NAME",
            shell_complete=complete_topics,
            help="An existing topic in place of one of its own. Records that are sent stay in it.",
        ),
    ):
        command = decorate(command)
    return command


size_option: Final = click.option(
    "--size", type=Whole(min=0, max=1 << 27), default=SIZE, show_default=True, help="Bytes of each value."
)
acks_option: Final = click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True
)
compression_option: Final = click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)


@bench.command()
@click.option("--records", type=Whole(min=1), help="Send this many records, in place of --seconds.")
@click.option(
    "--seconds", type=Real(min=0.1, max=86_400), help=f"Send for this long. By default {SECONDS:g}."
)
@click.option(
    "--rate", type=Real(min=0.01), help="Send this many records a second; by default as many as possible."
)
@size_option
@acks_option
@compression_option
@_shared_options
def produce(
    records: int | None,
    seconds: float | None,
    rate: float | None,
    size: int,
    acks: str,
    compression: str,
    topic: str | None,
    partitions: int,
    replication_factor: int | None,
    properties: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
) -> None:
    """Send records: how many a second, and how long until they are acknowledged."""
    settings = _settings(bootstrap, {"acks": acks, "compression.type": compression}, properties)
    with (
        _topic(bootstrap, topic, partitions, replication_factor) as name,
        client.Producer.from_config(settings) as producer,
    ):
        measured = runs.measure_sending(
            producer,
            name,
            runs.payloads(size),
            rate=rate,
            count=records,
            seconds=_seconds(records, seconds),
            show=_show("sent"),
        )
    _report("sent", measured, {"size": size, "acks": acks, "compression": compression}, as_json=as_json)


@bench.command()
@click.option("--records", type=Whole(min=1), help="Read at most this many records.")
@click.option("--seconds", type=Real(min=0.1, max=86_400), help="Read for at most this long.")
@click.option(
    "--fill",
    type=Whole(min=1),
    help=f"Records to write first into the topic that it makes. By default {FILL_RECORDS:,}.",
)
@size_option
@compression_option
@_shared_options
def consume(
    records: int | None,
    seconds: float | None,
    fill: int | None,
    size: int,
    compression: str,
    topic: str | None,
    partitions: int,
    replication_factor: int | None,
    properties: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
) -> None:
    """Read records from the beginning: how many a second."""
    if topic is not None and fill is not None:
        raise ConfigError("--fill is for a topic that the command makes: leave out --topic or --fill")
    settings = _settings(bootstrap, {"auto.offset.reset": "earliest"}, properties)
    with _topic(bootstrap, topic, partitions, replication_factor) as name:
        if topic is None:
            _fill(bootstrap, name, fill or FILL_RECORDS, size, compression)
        with client.Consumer.from_config(settings) as consumer:
            ends = _assign(consumer, name)
            measured = runs.measure_reading(
                consumer, ends, count=records, seconds=seconds, show=_show("read")
            )
    conditions: dict[str, Json] = {} if topic is not None else {"size": size, "compression": compression}
    _report("read", measured, conditions, as_json=as_json)


@bench.command("end-to-end")
@click.option("--seconds", type=Real(min=0.1, max=86_400), default=SECONDS, show_default=True)
@click.option(
    "--rate", type=Real(min=0.01), default=1000.0, show_default=True, help="Records that are sent a second."
)
@click.option(
    "--size",
    type=Whole(min=_MOMENT_BYTES, max=1 << 27),
    default=SIZE,
    show_default=True,
    help="Bytes of each value.",
)
@acks_option
@compression_option
@_shared_options
def end_to_end(
    seconds: float,
    rate: float,
    size: int,
    acks: str,
    compression: str,
    topic: str | None,
    partitions: int,
    replication_factor: int | None,
    properties: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
) -> None:
    """Send at a steady rate and read it back: how long until a record is acknowledged, and until it is read.

    A latency begins when the record was due, also where this machine was late.
    """
    sending = _settings(bootstrap, {"acks": acks, "compression.type": compression}, properties)
    reading = _settings(bootstrap, {"auto.offset.reset": "latest"}, ())
    with (
        _topic(bootstrap, topic, partitions, replication_factor) as name,
        client.Producer.from_config(sending) as producer,
        client.Consumer.from_config(reading) as consumer,
    ):
        ends = _assign(consumer, name)
        for partition, end in ends.items():
            consumer.seek(partition, end)
        for warm_s, show in ((min(WARM_SECONDS, seconds), _show_nothing), (seconds, _show("sent"))):
            way = runs.WayOfRecords(producer, consumer, name)
            try:
                measured = way.measure(size, rate=rate, seconds=warm_s, show=show)
            except TimeoutError as error:
                raise OdradekError(str(error)) from None
    conditions: dict[str, Json] = {"size": size, "acks": acks, "compression": compression, "rate": rate}
    _report("sent", measured, conditions, as_json=as_json)


def _seconds(records: int | None, seconds: float | None) -> float | None:
    return SECONDS if records is None and seconds is None else seconds


def _settings(bootstrap: str, own: dict[str, str], properties: Sequence[str]) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        **own,
        **connection_settings(),
        **pairs(properties, "--property"),
    }


@contextmanager
def _topic(
    bootstrap: str, topic: str | None, partitions: int, replication_factor: int | None
) -> Iterator[str]:
    """Yields the topic to use. One that it makes is deleted at the end, also after Ctrl-C and errors."""
    check_reachable(bootstrap)
    if topic is not None:
        with open_admin(bootstrap) as admin:
            admin.describe_topics([topic])  # KafkaError when there is none: clients would make it
        yield topic
        return
    name = f"odradek-bench-{secrets.token_hex(4)}"
    with open_admin(bootstrap) as admin:
        admin.create_topics([client.NewTopic(name, partitions, replication_factor or -1)])
        try:
            yield name
        finally:
            _delete(admin, name)


def _delete(admin: Admin, name: str) -> None:
    try:
        admin.delete_topics([name])
    except OdradekError as error:
        remark(f"the topic {name} is still there: {error}. Delete it with `odradek topic delete {name}`")


def _fill(bootstrap: str, topic: str, count: int, size: int, compression: str) -> None:
    with client.Producer.from_config(_settings(bootstrap, {"compression.type": compression}, ())) as producer:
        runs.measure_sending(
            producer,
            topic,
            runs.payloads(size),
            rate=None,
            count=count,
            seconds=None,
            show=_show(f"of {count:,} written"),
        )


def _assign(consumer: client.Consumer[bytes, bytes], topic: str) -> dict[TopicPartition, int]:
    """Assigns all partitions, and returns the end of each. KafkaError when there is no such topic."""
    partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
    consumer.assign(partitions)
    return consumer.end_offsets(partitions)


def _show(what: str) -> runs.Show:
    """Shows a count on a terminal, in place; nothing elsewhere."""
    if not sys.stderr.isatty():
        return _show_nothing

    def show(count: int, seconds: float) -> None:
        say_in_place(f"{count:,} {what} in {seconds:.0f} s, {count / seconds:,.0f}/s   ")

    return show


def _show_nothing(count: int, seconds: float) -> None:
    pass


def _report(what: str, measured: Measured, conditions: Mapping[str, Json], *, as_json: bool) -> None:
    if as_json:
        print_json(_document(measured, conditions))
        return
    if sys.stderr.isatty():
        say_in_place(" " * 60 + "\r")
    say(
        f"{measured.records:,} records {what}, {bytes_text(measured.bytes)}, in {measured.seconds:.2f} s:"
        f" {measured.records_per_second:,.0f} records/s, {bytes_text(measured.bytes_per_second)}/s"
    )
    if len(measured.rates) > 1:
        slowest, fastest = min(measured.rates), max(measured.rates)
        say(f"each second  {pictures.rate_line(measured.rates)}  {slowest:,.0f} to {fastest:,.0f} records/s")
    for moment, histogram in measured.latencies.items():
        if histogram.count:
            texts = (f"{name.removesuffix('_ms')} {value:g}" for name, value in histogram.figures().items())
            say(f"until {moment}, ms: {', '.join(texts)} ({histogram.count:,} records)")
            for line in pictures.latency_bars(histogram.doublings()):
                say(line)


def _document(measured: Measured, conditions: Mapping[str, Json]) -> dict[str, Json]:
    return {
        **conditions,
        "records": measured.records,
        "bytes": measured.bytes,
        "seconds": round(measured.seconds, 6),
        "records_per_second": round(measured.records_per_second, 3),
        "bytes_per_second": round(measured.bytes_per_second, 3),
        "rates": [round(rate, 3) for rate in measured.rates],
        "latencies": {
            moment: {"records": histogram.count, **histogram.figures()}
            for moment, histogram in measured.latencies.items()
            if histogram.count
        },
    }
