"""The records of a topic: a search in steps, a live tail, one record, and its bytes as a download."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.client.network.errors import explain
from odradek.console.pages.record_forms import (
    STARTS,
    RecordQuery,
    cursor_text,
    offset_of,
    partition_of,
    record_query,
    time_text,
)
from odradek.console.pages.topic import known_topic
from odradek.console.records.decoding import DecodedPage
from odradek.console.records.reading import RecordTail, ScanStep
from odradek.console.records.view import content_view, frequent_keys, short_text
from odradek.console.web.application import ConsolePage
from odradek.console.web.console import LIVE_STREAMS_MAX
from odradek.console.web.gate import TAIL_PATH
from odradek.console.web.streams import event_stream
from odradek.console.web.visit import Visit
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition

MATCHES_MAX: Final = 50
LAST_MATCHES_MAX: Final = 10_000
"""The matches among the last records of all partitions, of which the newest are shown."""
LAST_SHOWN_MAX: Final = 500
STEP_WAIT_S: Final = 25.0
HEADERS_MAX: Final = 100
TAIL_ROWS_MAX: Final = 50
"""The rows of one event of a tail; of records that arrive faster the last ones are shown."""
TAIL_S: Final = 900.0
_TAIL_POLL_S: Final = 1.0


async def show(visit: Visit) -> Response:
    """Shows one step of a search, what it read, and where it continues."""
    topic = await known_topic(visit)
    step, line, query = None, "", None
    try:
        query = record_query(visit, topic)
        if visit.query.get("from") != "tail":
            step = await _step(visit, topic.name, query)
    except KafkaError:
        raise
    except OdradekError as error:
        line = explain(error)
    is_tail = visit.query.get("from") == "tail"
    rows = [] if step is None or query is None else _rows(visit, query, step)
    frequent = frequent_keys([record.key for record in (() if step is None else step.records)])
    decoded = await _decoded(visit, rows)
    tail = {"topic": topic.name, "partition": visit.query.get("partition", "")}
    return visit.render(
        "records.html",
        400 if line else 200,
        active="topics",
        topic=topic,
        starts=STARTS,
        step=step,
        rows=rows,
        frequent=frequent,
        line=line,
        query=visit.query,
        progress=None if step is None or query is None else _progress(visit, query, step),
        tail_path=f"{TAIL_PATH}?{urlencode(tail)}" if is_tail else "",
        short=_short(decoded),
        problem=decoded.problem,
        is_masked=visit.console.options.masks.hides(topic.name),
        time_text=time_text,
    )


async def _decoded(visit: Visit, rows: Sequence[ConsumerRecord]) -> DecodedPage:
    """Decodes the keys and values that have a schema."""
    return await visit.console.decoder.page([part for row in rows for part in (row.key, row.value)])


def _short(decoded: DecodedPage) -> Callable[[bytes | None], str | None]:
    return lambda content: short_text(decoded.bytes_of(content))


async def _step(visit: Visit, topic: str, query: RecordQuery) -> ScanStep:
    try:
        async with asyncio.timeout(STEP_WAIT_S):
            return await visit.run(
                visit.model.reader.scan(
                    topic,
                    query.partitions,
                    query.start,
                    query.wanted,
                    matches_max=LAST_MATCHES_MAX if query.start.kind == "last" else MATCHES_MAX,
                    committed=query.committed,
                )
            )
    except TimeoutError:
        line = visit.catalogue.text("records.slow", time=visit.catalogue.seconds(STEP_WAIT_S))
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, line) from None


def _rows(visit: Visit, query: RecordQuery, step: ScanStep) -> list[ConsumerRecord]:
    """Returns the records to show: of the last ones, those that are the newest in all partitions together."""
    rows = ordered(step.records, newest_first=_is_newest_first(visit))
    return rows[: min(query.start.number, LAST_SHOWN_MAX)] if query.start.kind == "last" else rows


def _is_newest_first(visit: Visit) -> bool:
    return visit.query.get("from", "last") == "last"


def ordered(records: list[ConsumerRecord], *, newest_first: bool) -> list[ConsumerRecord]:
    """Returns records of several partitions by time."""
    return sorted(
        records,
        key=lambda record: (record.timestamp_ms, record.partition, record.offset),
        reverse=newest_first,
    )


def _progress(visit: Visit, query: RecordQuery, step: ScanStep) -> dict[str, object]:
    """Returns how far the search read, and the path on which it continues; an empty path at the end."""
    scanned, size = query.scanned_before + step.scanned, query.bytes_before + step.scanned_bytes
    undecoded = query.undecoded_before + step.undecoded
    further = ""
    if not step.is_complete:
        counts = {"scanned": scanned, "bytes": size, "undecoded": undecoded or None}
        further = visit.here(cursor=cursor_text(step.positions), **counts)
    return {
        "scanned": scanned,
        "scanned_bytes": size,
        "until": time_text(step.until_ms),
        "left": step.left,
        "undecoded": undecoded,
        "problem": step.problem,
        "further": further,
        "goes_on": bool(further) and not query.wanted.is_empty and len(step.records) < MATCHES_MAX,
    }


async def show_record(visit: Visit) -> Response:
    """Shows one record."""
    record = await known_record(visit)
    decoded = await _decoded(visit, [record])
    return visit.render(
        "record.html",
        active="topics",
        record=record,
        key=content_view(decoded.bytes_of(record.key)),
        value=content_view(decoded.bytes_of(record.value)),
        schemas=(decoded.of(record.key), decoded.of(record.value)),
        problem=decoded.problem,
        is_masked=visit.console.options.masks.concerns(record),
        headers=[
            (name, short_text(value), len(value or b"")) for name, value in record.headers[:HEADERS_MAX]
        ],
        download_path=f"/topics/{record.topic}/records/{record.partition}/{record.offset}",
        headers_left=max(0, len(record.headers) - HEADERS_MAX),
        time_text=time_text,
    )


async def known_record(visit: Visit) -> ConsumerRecord:
    """Returns the record that the path names. KafkaError if there is none."""
    topic = await known_topic(visit)
    params = visit.request.path_params
    return await record_at(
        visit,
        TopicPartition(topic.name, partition_of(params["partition"], topic)),
        offset_of(params["offset"]),
    )


async def record_at(visit: Visit, tp: TopicPartition, offset: int) -> ConsumerRecord:
    """Returns one record, within a limit of time. KafkaError if there is none."""
    try:
        async with asyncio.timeout(STEP_WAIT_S):
            return await visit.run(visit.model.reader.record(tp, offset))
    except TimeoutError:
        line = visit.catalogue.text("records.slow", time=visit.catalogue.seconds(STEP_WAIT_S))
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, line) from None


async def download(visit: Visit) -> Response:
    """Sends the bytes of a value or a key. Nothing of the record is in the headers."""
    record = await known_record(visit)
    part = visit.request.path_params["part"]
    if part not in ("key", "value"):
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, visit.catalogue.text("error.not_found"))
    content = record.key if part == "key" else record.value
    return Response(
        content or b"",
        media_type="application/octet-stream",
        headers={
            "content-disposition": f'attachment; filename="{part}-{record.partition}-{record.offset}.bin"'
        },
    )


async def tail(visit: Visit) -> Response:
    """Server-sent events: rows of records as they arrive."""
    await visit.wait_until_read()
    topic = visit.snapshot.topics.get(visit.query.get("topic", ""))
    if topic is None:
        return Response(status_code=404)
    text = visit.query.get("partition", "")
    partitions = [partition_of(text, topic)] if text else list(range(topic.partitions))
    if visit.console.live_streams >= LIVE_STREAMS_MAX:
        return Response(status_code=503)
    reader = await visit.run(visit.model.reader.tail(topic.name, partitions))
    return event_stream(_tail_events(visit, reader), visit.console.ended)


async def _tail_events(visit: Visit, reader: RecordTail) -> AsyncGenerator[str, None]:
    console = visit.console
    console.live_streams += 1
    rows = console.templates.get_template("record_rows.html")
    try:
        yield "retry: 5000\n\n"
        began_s = console.clock.monotonic()
        while console.clock.monotonic() - began_s < TAIL_S:
            count, records = await visit.run(reader.poll(_TAIL_POLL_S, TAIL_ROWS_MAX))
            if not await visit.admit():
                return
            if not records:
                yield ": alive\n\n"
                continue
            shown = ordered(records, newest_first=True)
            html = rows.render(
                **visit.values(),
                rows=shown,
                short=_short(await _decoded(visit, shown)),
                time_text=time_text,
            )
            data = "".join(f"data: {line}\n" for line in html.splitlines() if line.strip())
            yield f"event: records\nid: {max(0, count - TAIL_ROWS_MAX)}\n{data}\n"
    except OdradekError:
        return  # the browser opens the stream again
    finally:
        console.live_streams -= 1
        console.background.start(reader.close())


PAGES: Final = (
    ConsolePage(path="/topics/{name}/records", show=show),
    ConsolePage(path="/topics/{name}/records/{partition}/{offset}", show=show_record),
    ConsolePage(path="/topics/{name}/records/{partition}/{offset}/{part}", show=download),
    ConsolePage(path=TAIL_PATH, show=tail),
)
