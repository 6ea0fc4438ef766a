"""`odradek txn`: list, describe, find-hanging, abort, terminate."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.access import open_admin
from odradek.cli.moments import parse_moment_or_duration, time_text
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, complete_topics, complete_transactions, json_option
from odradek.cli.output import confirm, print_json, print_table, remark
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.admin import transaction_descriptions
    from odradek.client.admin.transaction_descriptions import OpenTransaction
    from odradek.spark.exactly_once import decision
else:
    decision = lazy("odradek.spark.exactly_once.decision")
    transaction_descriptions = lazy("odradek.client.admin.transaction_descriptions")

_COLUMNS: Final = (
    "transaction",
    "state",
    "producer",
    "epoch",
    "timeout_ms",
    "started",
    "partitions",
    "owner",
)
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
    """List transactional ids, and their owners where the name shows them: a sink of Spark, its driver or its tasks."""
    duration_ms = None
    if longer_than is not None:
        now_ms = round(time.time() * 1000)
        duration_ms = now_ms - parse_moment_or_duration(longer_than, now_ms=now_ms)
    with open_admin(bootstrap) as admin:
        transactions = admin.list_transactions(states=states, duration_ms=duration_ms)
    columns = ("transaction", "state", "producer", "coordinator", "owner")
    rows = [
        (
            transaction_listing.transactional_id,
            transaction_listing.state,
            transaction_listing.producer_id,
            transaction_listing.coordinator,
            owner(transaction_listing.transactional_id),
        )
        for transaction_listing in transactions
    ]
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
        transactions = admin.describe_transactions(names)
    rows = [
        (
            transaction_description.transactional_id,
            transaction_description.state,
            transaction_description.producer_id,
            transaction_description.producer_epoch,
            transaction_description.timeout_ms,
            time_text(transaction_description.start_time_ms)
            if transaction_description.start_time_ms is not None
            else None,
            [str(tp) for tp in sorted(transaction_description.partitions)],
            owner(transaction_description.transactional_id),
        )
        for transaction_description in transactions.values()
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
    help="Only those to which nothing was written for this long: transaction.max.timeout.ms is a good choice.",
)
@bootstrap_option
@json_option
def find_hanging(topics: tuple[str, ...], older_than: str, bootstrap: str, as_json: bool) -> None:
    """Find transactions that are open in a partition, and that no coordinator will ever end.

    They hold back everyone who reads committed records.
    """
    before_ms = parse_moment_or_duration(older_than, now_ms=round(time.time() * 1000))
    with open_admin(bootstrap) as admin:
        names = topics or admin.list_topics(internal=True)
        transactions = hanging(admin, names, before_ms)
    _print(_HANGING, [_hanging_row(open_transaction) for open_transaction in transactions], as_json)


@txn.command()
@click.option("--topic", "-t", required=True, shell_complete=complete_topics)
@click.option("--partition", "-p", required=True, type=Whole(min=0, bits=31))
@click.option("--start-offset", type=Whole(min=0), help="The transaction that begins here.")
@click.option("--producer-id", type=Whole(min=0), help="The open transaction of this producer.")
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
            transaction
            for transaction in open_transactions(admin, [tp])
            if start_offset in (None, transaction.start_offset)
            and producer_id in (None, transaction.producer_id)
        ]
        if not matching:
            what = f"that begins at {start_offset}" if producer_id is None else f"of producer {producer_id}"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transaction {what} is open in {tp}")
        open_transaction = matching[0]
        if not yes and sys.stdin.isatty():
            confirm(f"Abort the transaction of producer {open_transaction.producer_id} in {tp}?", abort=True)
        admin.abort_transaction(open_transaction)
    remark(
        f"aborted the transaction of producer {open_transaction.producer_id} at offset {open_transaction.start_offset} of {tp}"
    )


@txn.command()
@click.argument(
    "names", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True, shell_complete=complete_transactions
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
def terminate(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Abort open transactions that the coordinator knows, and fence their producers.

    A producer that still lives fails with PRODUCER_FENCED. Of a sink of Spark, `pipeline forget` ends what it left.
    """
    with open_admin(bootstrap) as admin:
        admin.describe_transactions(names)  # fencing an id that is not there would make it
        if not yes and sys.stdin.isatty():
            confirm(f"Abort what {', '.join(names)} left open, and shut the producers out?", abort=True)
        admin.fence_producers(names)
    remark(f"ended the transactions of {', '.join(names)}")


def owner(transactional_id: str) -> str | None:
    """Returns the sink that a transaction belongs to, if its name tells: `pipeline forget` ends a sink's
    transactions."""
    sink = decision.sink_of(transactional_id)
    return None if sink is None else f"sink {sink[0]}, {sink[1]}"


def open_transactions(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> list[transaction_descriptions.OpenTransaction]:
    """Returns the open transactions in each of them."""
    return transaction_descriptions.open_transactions_in(admin.describe_producers(partitions))


def hanging(admin: Admin, topics: Iterable[str], before_ms: int) -> list[OpenTransaction]:
    """Open in a partition since `before_ms`, and unknown to every coordinator as a transaction that is open there."""
    topic_descriptions = admin.describe_topics(topics)
    partitions = [
        TopicPartition(topic_description.name, part.partition)
        for topic_description in topic_descriptions.values()
        for part in topic_description.partitions
        if part.leader >= 0
    ]
    if not partitions:
        return []
    suspects = [
        transaction
        for transaction in open_transactions(admin, partitions)
        if transaction.last_timestamp_ms <= before_ms
    ]
    if not suspects:
        return []
    listed = admin.list_transactions(producer_ids=sorted({suspect.producer_id for suspect in suspects}))
    alive = transaction_descriptions.ids_not_ended(listed)
    described = admin.describe_transactions(alive) if alive else {}
    return transaction_descriptions.hanging_among(suspects, described.values())


def _hanging_row(open_transaction: OpenTransaction) -> tuple[object, ...]:
    return (
        open_transaction.partition.topic,
        open_transaction.partition.partition,
        open_transaction.producer_id,
        open_transaction.producer_epoch,
        open_transaction.coordinator_epoch,
        open_transaction.start_offset,
        time_text(open_transaction.last_timestamp_ms),
    )


def _print(columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows)
