"""Transactions that hold readers back: those that are open for long, those that hang, and how both are ended after a look."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.client.admin.transaction_descriptions import ONGOING, OpenTransaction, TransactionDescription
from odradek.client.network.errors import explain
from odradek.console.model.transaction_ending import (
    HangingSearch,
    OpenTransactionView,
    abort_hanging,
    find_hanging,
    known_transaction,
    open_transaction,
    searched_partitions,
    terminate,
)
from odradek.console.pages.offers import may_write_transactions, offers_of
from odradek.console.pages.record_forms import partition_of
from odradek.console.pages.topics import page_number, pages_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.model.java_numbers import is_digits

PAGE_ROWS: Final = 50
PARTITION_ROWS: Final = 100
WAIT_S: Final = 25.0
MINUTES_DEFAULT: Final = 15
"""The default of transaction.max.timeout.ms: no transaction that a coordinator knows is open for longer without a record."""
_MINUTES_DIGITS_MAX: Final = 6
_DIGITS_MAX: Final = 18
T = TypeVar("T")


async def show(visit: Visit) -> Response:
    """Shows transactions that are open for long; with `find`, one step of a search for those that hang."""
    await visit.wait_until_read()
    search, line = None, ""
    if "find" in visit.query:
        try:
            search = await _search(visit)
        except OdradekError as error:
            line = explain(error)
    snapshot = visit.snapshot
    page = page_number(visit.query.get("page", ""), len(snapshot.long_transactions), PAGE_ROWS)
    ids = [transaction.transactional_id for transaction in snapshot.long_transactions]
    return visit.render(
        "transactions/list.html",
        400 if line else 200,
        active="groups",
        rows=snapshot.long_transactions[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        left_out=max(0, snapshot.long_transaction_count - len(ids)),
        page=page,
        pages=pages_of(len(ids), PAGE_ROWS),
        query=visit.query,
        minutes=visit.query.get("minutes", "") or str(MINUTES_DEFAULT),
        search=search,
        further="" if search is None or search.is_complete else visit.here(start=search.looked_at),
        line=line,
        now_ms=visit.console.clock.wall_ms(),
        offers=await offers_of(visit),
        may_terminate=await may_write_transactions(visit),
        terminate_link=terminate_link,
        abort_link=abort_link,
    )


def terminate_link(transactional_id: str) -> str:
    """Returns the path of the page that ends a transaction which its coordinator knows."""
    return "/transactions/terminate?" + urlencode({"id": transactional_id})


def abort_link(transaction: OpenTransaction) -> str:
    """Returns the path of the page that ends a transaction in one partition."""
    tp = transaction.partition
    fields = {"topic": tp.topic, "partition": tp.partition, "producer": transaction.producer_id}
    return "/transactions/abort?" + urlencode(fields)


async def _search(visit: Visit) -> HangingSearch:
    topic = visit.query.get("topic", "").strip()
    if topic and topic not in visit.snapshot.topics:
        raise ConfigError(visit.catalogue.text("transactions.no_topic", name=topic[:249]))
    text = visit.query.get("minutes", "").strip() or str(MINUTES_DEFAULT)
    if not is_digits(text) or len(text) > _MINUTES_DIGITS_MAX:
        raise ConfigError(visit.catalogue.text("reset.not_a_number"))
    before_ms = visit.console.clock.wall_ms() - int(text) * 60_000
    partitions = searched_partitions(visit.snapshot, topic)
    start = min(_number(visit.query.get("start", "0")), len(partitions))
    return await _within(visit, find_hanging(visit.model.admin, partitions, start, before_ms))


async def _within(visit: Visit, call: Coroutine[object, None, T]) -> T:
    try:
        async with asyncio.timeout(WAIT_S):
            return await visit.run(call)
    except TimeoutError:
        line = visit.catalogue.text("transactions.slow", time=visit.catalogue.seconds(WAIT_S))
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, line) from None


def _number(text: str) -> int:
    if not is_digits(text) or len(text) > _DIGITS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text!r:.40} is no number")
    return int(text)


async def show_abort(visit: Visit) -> Response:
    return await _abort_page(visit)


async def abort(visit: Visit) -> Response:
    """Ends the hanging transaction that was shown, in its partition."""
    tp, producer_id = await _partition(visit), _number(visit.query.get("producer", ""))
    shown = OpenTransaction(
        partition=tp,
        producer_id=producer_id,
        producer_epoch=_number(visit.form.get("epoch", "")),
        coordinator_epoch=-1,
        start_offset=_number(visit.form.get("start", "")),
        last_timestamp_ms=-1,
    )
    try:
        await _within(visit, abort_hanging(visit.model.admin, shown))
    except OdradekError as error:
        return await _abort_page(visit, explain(error), 400)
    await visit.run(visit.model.refresh_now("transactions", "groups"))
    return visit.redirect("/transactions", "transaction_aborted")


async def _abort_page(visit: Visit, line: str = "", status: int = 200) -> Response:
    tp, producer_id = await _partition(visit), _number(visit.query.get("producer", ""))
    view: OpenTransactionView | None = None
    try:
        view = await _within(visit, open_transaction(visit.model.admin, tp, producer_id))
    except OdradekError as error:
        if not line:
            raise
        line = line if explain(error) == line else f"{line}; {explain(error)}"
    return visit.render(
        "transactions/abort.html",
        status,
        active="groups",
        view=view,
        tp=tp,
        line=line,
        now_ms=visit.console.clock.wall_ms(),
        offers=await offers_of(visit),
        terminate_link=terminate_link,
        abort_link=abort_link,
    )


async def _partition(visit: Visit) -> TopicPartition:
    """Returns the partition that the query names, if the model has it: the client waits long for one that is not there."""
    await visit.wait_until_read()
    name = visit.query.get("topic", "")
    topic = visit.snapshot.topics.get(name)
    if topic is None:
        line = visit.catalogue.text("transactions.no_topic", name=name[:249])
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, line)
    return TopicPartition(name, partition_of(visit.query.get("partition", ""), topic))


async def show_terminate(visit: Visit) -> Response:
    return await _terminate_page(visit)


async def end(visit: Visit) -> Response:
    """Aborts the transaction that was shown in all partitions, and fences its producer."""
    name = visit.query.get("id", "")
    producer_id, start_ms = _number(visit.form.get("producer", "")), _number(visit.form.get("start", ""))
    try:
        await _within(visit, terminate(visit.model.admin, name, producer_id, start_ms))
    except OdradekError as error:
        return await _terminate_page(visit, explain(error), 400)
    await visit.run(visit.model.refresh_now("transactions", "groups"))
    return visit.redirect("/transactions", "transaction_aborted")


async def _terminate_page(visit: Visit, line: str = "", status: int = 200) -> Response:
    name = visit.query.get("id", "")
    transaction: TransactionDescription = await _within(visit, known_transaction(visit.model.admin, name))
    started_ms = transaction.start_time_ms
    return visit.render(
        "transactions/terminate.html",
        status,
        active="groups",
        transaction=transaction,
        is_open=transaction.state == ONGOING and started_ms is not None,
        open_s=None if started_ms is None else max(0, visit.console.clock.wall_ms() - started_ms) / 1000,
        partitions=sorted(transaction.partitions)[:PARTITION_ROWS],
        partitions_left_out=max(0, len(transaction.partitions) - PARTITION_ROWS),
        line=line,
        may_terminate=await may_write_transactions(visit, name),
        terminate_link=terminate_link,
    )


PAGES: Final = (
    ConsolePage(path="/transactions", show=show),
    ConsolePage(path="/transactions/abort", show=show_abort, act=abort),
    ConsolePage(path="/transactions/terminate", show=show_terminate, act=end),
)
