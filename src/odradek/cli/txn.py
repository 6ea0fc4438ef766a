"""`odradek txn`: list, describe, find-hanging, abort."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.cli.cluster.access import open_admin
from odradek.cli.group.offset_resets import parse_moment_or_duration
from odradek.cli.options import bootstrap_option, complete_topics, complete_transactions, json_option
from odradek.cli.output import print_json, print_table, remark
from odradek.cli.records.moments import time_text
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.admin import transaction_descriptions
    from odradek.client.admin.transaction_descriptions import OpenTransaction
else:
    transaction_descriptions = lazy("odradek.client.admin.transaction_descriptions")

_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
_COLUMNS: Final = ("transaction", "state", "producer", "epoch", "timeout_ms", "started", "partitions")
_HANGING: Final = (
    "topic",
    "partition",
    "producer",
    "epoch",
    "coordinator_epoch",
    "start_offset",
    "last_written",
)


@click.group()
def txn() -> None:
    """List and describe transactions, and abort those that hang."""


@txn.command("list")
@click.option("--state", "-s", "states", multiple=True, help="Only those in this state: Ongoing, ...")
@click.option("--longer-than", metavar="DURATION", help="Only those open for longer: 15m, PT15M.")
@bootstrap_option
@json_option
def list_(states: tuple[str, ...], longer_than: str | None, bootstrap: str, as_json: bool) -> None:
    """List transactional ids."""
    duration_ms = None
    if longer_than is not None:
        now_ms = round(time.time() * 1000)
        duration_ms = now_ms - parse_moment_or_duration(longer_than, now_ms=now_ms)
    with open_admin(bootstrap) as admin:
        found = admin.list_transactions(states=states, duration_ms=duration_ms)
    columns = ("transaction", "state", "producer", "coordinator")
    rows = [(each.transactional_id, each.state, each.producer_id, each.coordinator) for each in found]
    _print(columns, rows, as_json)


@txn.command()
@click.argument(
    "names", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True, shell_complete=complete_transactions
)
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show state, producer, timeout and partitions of transactions."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_transactions(names)
    rows = [
        (
            each.transactional_id,
            each.state,
            each.producer_id,
            each.producer_epoch,
            each.timeout_ms,
            time_text(each.start_time_ms) if each.start_time_ms is not None else None,
            [str(tp) for tp in sorted(each.partitions)],
        )
        for each in found.values()
    ]
    _print(_COLUMNS, rows, as_json)


@txn.command("find-hanging")
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Only in this topic; by default everywhere.",
)
@click.option(
    "--older-than",
    metavar="DURATION",
    default="15m",
    show_default=True,
    help="Only those to which nothing was written for so long: transaction.max.timeout.ms is a good choice.",
)
@bootstrap_option
@json_option
def find_hanging(topics: tuple[str, ...], older_than: str, bootstrap: str, as_json: bool) -> None:
    """Find transactions that are open in a partition, and that no coordinator will ever end.

    They hold back everybody who reads committed records.
    """
    before_ms = parse_moment_or_duration(older_than, now_ms=round(time.time() * 1000))
    with open_admin(bootstrap) as admin:
        names = topics or admin.list_topics(internal=True)
        found = hanging(admin, names, before_ms)
    _print(_HANGING, [_hanging_row(each) for each in found], as_json)


@txn.command()
@click.option("--topic", "-t", required=True, shell_complete=complete_topics)
@click.option("--partition", "-p", required=True, type=click.IntRange(min=0))
@click.option("--start-offset", type=click.IntRange(min=0), help="The transaction that begins here.")
@click.option("--producer-id", type=click.IntRange(min=0), help="The open transaction of this producer.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
def abort(
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    yes: bool,
    bootstrap: str,
) -> None:
    """Abort a hanging transaction in one partition, by writing the marker that its coordinator never wrote.

    A transaction whose coordinator still knows it ends by its timeout: find-hanging tells them apart.
    """
    if (start_offset is None) == (producer_id is None):
        raise click.UsageError("give --start-offset or --producer-id", click.get_current_context())
    tp = TopicPartition(topic, partition)
    with open_admin(bootstrap) as admin:
        matching = [
            each
            for each in open_transactions(admin, [tp])
            if start_offset in (None, each.start_offset) and producer_id in (None, each.producer_id)
        ]
        if not matching:
            what = f"that begins at {start_offset}" if producer_id is None else f"of producer {producer_id}"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transaction {what} is open in {tp}")
        found = matching[0]
        if not yes and sys.stdin.isatty():
            click.confirm(f"Abort the transaction of producer {found.producer_id} in {tp}?", abort=True)
        admin.abort_transaction(found)
    remark(f"aborted the transaction of producer {found.producer_id} at offset {found.start_offset} of {tp}")


def open_transactions(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> list[transaction_descriptions.OpenTransaction]:
    """What is open in each of them."""
    return [
        transaction_descriptions.OpenTransaction(
            partition=tp,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            coordinator_epoch=each.coordinator_epoch,
            start_offset=each.transaction_start_offset,
            last_timestamp_ms=each.last_timestamp_ms,
        )
        for tp, producers in admin.describe_producers(partitions).items()
        for each in producers
        if each.transaction_start_offset is not None
    ]


def hanging(admin: Admin, topics: Iterable[str], before_ms: int) -> list[OpenTransaction]:
    """Open in a partition since `before_ms`, and unknown to every coordinator as a transaction that is open there."""
    found = admin.describe_topics(topics)
    partitions = [
        TopicPartition(each.name, part.partition)
        for each in found.values()
        for part in each.partitions
        if part.leader >= 0
    ]
    if not partitions:
        return []
    suspects = [each for each in open_transactions(admin, partitions) if each.last_timestamp_ms <= before_ms]
    if not suspects:
        return []
    producer_ids = sorted({each.producer_id for each in suspects})
    listed = admin.list_transactions(producer_ids=producer_ids)
    alive = [each.transactional_id for each in listed if each.state not in _ENDED]
    known = {
        (each.producer_id, tp)
        for each in (admin.describe_transactions(alive) if alive else {}).values()
        for tp in each.partitions
    }
    return [each for each in suspects if (each.producer_id, each.partition) not in known]


def _hanging_row(each: OpenTransaction) -> tuple[Any, ...]:
    return (
        each.partition.topic,
        each.partition.partition,
        each.producer_id,
        each.producer_epoch,
        each.coordinator_epoch,
        each.start_offset,
        time_text(each.last_timestamp_ms),
    )


def _print(columns: tuple[str, ...], rows: list[tuple[Any, ...]], as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows)
