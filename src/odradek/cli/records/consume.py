"""`odradek consume`: the records of a topic, on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from odradek import client
from odradek.cli.access import CLIENT_ID, PATIENCE_MS, check_reachable, connection_settings
from odradek.cli.moments import (
    START_FORMS,
    AtOffset,
    Beginning,
    End,
    FromTimestamp,
    LastRecords,
    Start,
    parse_start,
)
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, complete_groups, pairs, topic_argument, unescaped
from odradek.cli.records.output import FORMATS, TEMPLATE_FIELDS, Formatter, Layout, formatter
from odradek.client.consumer.same_topics import SameTopics
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Consumer, ConsumerRecord

POLL_S: Final = 0.5
RECORDS_IN_A_POLL: Final = 10_000
_NEW_TOPIC_S: Final = 1.0
_ASK_AGAIN_S: Final = 0.1


@click.command()
@topic_argument
@click.option(
    "--from", "-o", "start", metavar="WHERE", default="beginning", show_default=True, help=START_FORMS + "."
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=Whole(min=0, bits=31),
    multiple=True,
    help="Read this partition only.",
)
@click.option("--max", "-n", "record_limit", type=Whole(min=1), help="End after this many records.")
@click.option(
    "--group",
    "-g",
    "group_id",
    shell_complete=complete_groups,
    help="Read as a member of this group, and commit what was printed. --from is for a group that has no offsets.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are printed.",
)
@click.option(
    "--exit-at-end",
    "-e",
    is_flag=True,
    help="End at the record that was the last one when the command began.",
)
@click.option(
    "--format",
    "-f",
    "format_",
    type=click.Choice(FORMATS),
    default="line",
    show_default=True,
    help=(
        "line, hex, base64: a record on each line. json: an object on each line, exact for any bytes. raw: values only, "
        "nothing between them."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--template",
    "-t",
    metavar="TEXT",
    help=(
        f"Print each record so, and nothing else: {' '.join('{' + name + '}' for name in TEMPLATE_FIELDS)} \\n \\t \\0 \\xHH."
    ),
)
@click.option(
    "--raw",
    "as_it_is",
    is_flag=True,
    help="Bytes as they are, on a terminal, too. There control characters are escaped else; a file or a pipe gets all bytes.",
)
@click.option("--keys", "-k", is_flag=True, help="Print keys, too, before the values.")
@click.option("--headers", "-H", is_flag=True, help="Print headers, too.")
@click.option("--timestamps", "-T", is_flag=True, help="Print timestamps, too.")
@click.option("--offsets", "-O", is_flag=True, help="Print PARTITION:OFFSET, too.")
@click.option(
    "--key-separator",
    "-K",
    metavar="TEXT",
    default="\\t",
    help="The text between the parts of a line.  [default: \\t]",
)
@click.option(
    "--null", metavar="TEXT", default="", help="The text that is printed for null.  [default: nothing]"
)
@click.option(
    "--property",
    "-X",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any setting of a consumer, by Kafka's name, such as fetch.max.wait.ms=50.",
)
@bootstrap_option
def consume(
    topic: str,
    start: str,
    partitions: tuple[int, ...],
    record_limit: int | None,
    group_id: str | None,
    isolation: str,
    exit_at_end: bool,
    format_: str,
    as_json: bool,
    template: str | None,
    as_it_is: bool,
    keys: bool,
    headers: bool,
    timestamps: bool,
    offsets: bool,
    key_separator: str,
    null: str,
    properties: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Print the records of a topic, and wait for more unless an option says where to end.

    \b
    odradek consume flights --from -10 --exit-at-end --json
    odradek consume flights --template '{time} {key}={value}\\n'
    """
    to_bytes = formatter(
        Layout(
            format="json" if as_json else format_,
            template=template,
            separator=unescaped(key_separator),
            with_key=keys,
            with_headers=headers,
            with_timestamp=timestamps,
            with_partition=offsets,
            null=null.encode(),
            is_safe=sys.stdout.isatty() and not as_it_is,
        )
    )
    where = parse_start(start, now_ms=round(time.time() * 1000))
    settings = {
        **_settings(bootstrap, isolation),
        **_group_settings(group_id, where, partitions),
        **pairs(properties, "--property"),
    }
    check_reachable(bootstrap)
    with client.Consumer.from_config(settings) as consumer:
        assigned = (
            _subscribe(consumer, topic)
            if group_id is not None
            else _assign(consumer, topic, sorted(set(partitions)), where)
        )
        same = SameTopics(consumer.topic_id, {topic: consumer.topic_id(topic)})
        ends = consumer.end_offsets(assigned) if exit_at_end else None
        stop = Stop(record_limit=record_limit, ends=ends, of_group=group_id is not None, same=same)
        _print_all(consumer, to_bytes, stop)


def _settings(bootstrap: str, isolation: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "earliest",
        "default.api.timeout.ms": str(PATIENCE_MS),
        "isolation.level": isolation,
        **connection_settings(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The bounds of a read. A bound that is None ends nothing."""

    record_limit: int | None
    ends: dict[TopicPartition, int] | None
    of_group: bool = False
    """Whether it reads as a member of a group: printed records are committed, and it ends when all of its partitions do."""
    same: SameTopics
    """The topic that the ends belong to."""

    def is_wanted(self, record: ConsumerRecord) -> bool:
        """A partition that was added later holds only records that came later."""
        if self.ends is None:
            return True
        return record.offset < self.ends.get(TopicPartition(record.topic, record.partition), 0)

    def to_commit(self, partition: TopicPartition, position: int) -> int:
        """Records after the end were not printed: the group must still read them."""
        return position if self.ends is None else min(position, self.ends[partition])


def _group_settings(group_id: str | None, where: Start, partitions: Sequence[int]) -> dict[str, str]:
    if group_id is None:
        return {}
    reset = {Beginning(): "earliest", End(): "latest"}.get(where)
    if reset is None or partitions:
        raise click.UsageError(
            "--group takes --from beginning or --from end, for a group without offsets, and no --partition: the group's offsets"
            " say where to start, and its members share the partitions. `odradek group reset-offsets` sets offsets",
            click.get_current_context(),
        )
    return {"group.id": group_id, "auto.offset.reset": reset, "enable.auto.commit": "false"}


def _subscribe(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Subscribes to the topic and returns all of its partitions: which of them the group gives to this member is known
    later."""
    partitions = [TopicPartition(topic, partition) for partition in _partitions(consumer, topic)]
    consumer.subscribe([topic])
    return partitions


def _partitions(consumer: Consumer, topic: str) -> tuple[int, ...]:
    """Returns the partitions of the topic. A broker may need a moment to learn of a topic that was created through another
    broker."""
    deadline = time.monotonic() + _NEW_TOPIC_S
    while not (partitions := consumer.partitions_for(topic)):
        if time.monotonic() >= deadline:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        time.sleep(_ASK_AGAIN_S)
    return partitions


def _assign(consumer: Consumer, topic: str, wanted: Sequence[int], where: Start) -> list[TopicPartition]:
    """Assigns the partitions and seeks each to its start."""
    known = _partitions(consumer, topic)
    for partition in wanted:
        if partition not in known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}")
    assigned = [TopicPartition(topic, partition) for partition in wanted or known]
    consumer.assign(assigned)
    match where:
        case Beginning():
            consumer.seek_to_beginning()
        case End():
            consumer.seek_to_end()
        case FromTimestamp(timestamp_ms):
            consumer.seek_to_timestamp(dict.fromkeys(assigned, timestamp_ms))
        case AtOffset() | LastRecords():
            begins, ends = consumer.beginning_offsets(assigned), consumer.end_offsets(assigned)
            for topic_partition in assigned:
                offset = where.offset if isinstance(where, AtOffset) else ends[topic_partition] - where.count
                consumer.seek(
                    topic_partition, max(begins[topic_partition], min(offset, ends[topic_partition]))
                )
    return assigned


def _print_all(consumer: Consumer, to_bytes: Formatter, stop: Stop) -> None:
    out = sys.stdout.buffer
    left = stop.record_limit
    while left != 0 and not _at_end(consumer, stop):
        limit = RECORDS_IN_A_POLL if left is None else min(left, RECORDS_IN_A_POLL)
        records = consumer.poll(POLL_S, limit)
        if stop.ends is not None:
            stop.same.check()
        printed: set[TopicPartition] = set()
        for record in records:
            if stop.is_wanted(record):
                out.write(to_bytes(record))
                printed.add(TopicPartition(record.topic, record.partition))
                left = None if left is None else left - 1
        if printed:
            out.flush()
            if stop.of_group:
                positions = consumer.positions()
                consumer.commit({tp: stop.to_commit(tp, positions[tp]) for tp in printed})


def _at_end(consumer: Consumer, stop: Stop) -> bool:
    if stop.ends is None:
        return False
    mine = set(consumer.assignment()) if stop.of_group else set(stop.ends)
    if not mine:
        return False
    if stop.of_group:
        positions = consumer.positions()
        return all(tp in positions and positions[tp] >= end for tp, end in stop.ends.items() if tp in mine)
    return all(consumer.position(partition) >= end for partition, end in stop.ends.items())
