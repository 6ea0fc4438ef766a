"""`odradek pipeline forget`: what a Spark pipeline has left in the cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.access import open_admin
from odradek.cli.moments import time_text
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import confirm, print_json, print_table, remark
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.admin.transaction_descriptions import TransactionDescription
    from odradek.spark.exactly_once import decision, driver, open_transactions
    from odradek.spark.options import sink_ids
else:
    decision = lazy("odradek.spark.exactly_once.decision")
    sink_ids = lazy("odradek.spark.options.sink_ids")
    driver = lazy("odradek.spark.exactly_once.driver")
    open_transactions = lazy("odradek.spark.exactly_once.open_transactions")

_NEVER_S: Final = float("inf")
_COLUMNS: Final = ("transaction", "producer", "epoch", "started", "partitions")


@click.command()
@click.argument("sink_id", metavar="SINK")
@click.option(
    "--decision",
    "with_decision",
    is_flag=True,
    help="Forget the last decision, too: the sink id is free, and its query cannot come back without takeOver=true.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
@json_option
def forget(sink_id: str, with_decision: bool, yes: bool, bootstrap: str, as_json: bool) -> None:
    """End the transactions that an exactly-once sink of Spark holds open.

    For a query that does not come back: until then its transactions block readers of committed records. Rows
    of a batch that was decided are committed, all others are aborted. A running query stops. It can come
    back, and continues where it was.
    """
    with open_admin(bootstrap) as admin:
        remains = _remains_of(admin, sink_id)
        if not as_json:
            remains.show()
        if not yes and sys.stdin.isatty():
            confirm("End them?" if remains.is_open else "Shut out its query?", abort=True)
        _retire(admin, sink_id)
        if with_decision and remains.decided is not None:
            admin.delete_groups([sink_ids.group_of(sink_id)])
    if as_json:
        print_json(remains.as_json())
    remark(f"sink {sink_id} holds nothing open any more")


def _retire(admin: Admin, sink_id: str) -> None:
    sink = driver.SinkDriver(admin, sink_id, transaction_timeout_s=_NEVER_S)
    sink.retire()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SinkRemains:
    """What a sink has left in the cluster."""

    sink_id: str
    decided: decision.Decision | None
    open: list[TransactionDescription]

    @property
    def is_open(self) -> bool:
        return bool(self.open) or not (self.decided is None or self.decided.is_ended)

    def show(self) -> None:
        decided = self.decided
        if decided is None:
            remark(f"sink {self.sink_id} has decided nothing")
        else:
            what = (
                f"the write {decided.query!r}"
                if decided.is_keyed
                else f"batch {decided.batch} of query {decided.query}"
            )
            after = (
                "" if decided.is_ended else ", which is not carried out: its transactions will be committed"
            )
            remark(f"the last decision of sink {self.sink_id}: {what}{after}")
        if self.open:
            print_table(_COLUMNS, [_row(transaction) for transaction in self.open])

    def as_json(self) -> dict[str, object]:
        decided = self.decided
        return {
            "sink": self.sink_id,
            "decided": None
            if decided is None
            else {
                "query": decided.query,
                "batch": decided.batch,
                "keyed": decided.is_keyed,
                "carried_out": decided.is_ended,
            },
            "open": [dict(zip(_COLUMNS, _row(transaction), strict=True)) for transaction in self.open],
        }


def _row(transaction: TransactionDescription) -> tuple[object, ...]:
    return (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        time_text(transaction.start_time_ms) if transaction.start_time_ms is not None else None,
        [str(tp) for tp in sorted(transaction.partitions)],
    )


def _remains_of(admin: Admin, sink_id: str) -> _SinkRemains:
    """Returns what the sink has left now. Raises TRANSACTIONAL_ID_NOT_FOUND when there is no such sink."""
    sinks = {
        owner[0]
        for transaction in admin.list_transactions()
        if (owner := decision.sink_of(transaction.transactional_id)) is not None
    } | {
        group.group_id.removeprefix(sink_ids.GROUP_PREFIX)
        for group in admin.list_groups()
        if group.group_id.startswith(sink_ids.GROUP_PREFIX)
    }
    if sink_id not in sinks:
        known = f"there are {', '.join(sorted(sinks))}" if sinks else "no sink has written here"
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no sink {sink_id!r}: {known}")
    return _SinkRemains(
        sink_id=sink_id,
        decided=driver.last_decision(admin, sink_id, require_stable=False),
        open=open_transactions.open_transactions(admin, sink_id),
    )
