"""A lookup of a few rows of a table, read from the topic itself: where no view is, and none is worth making."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.client.network.errors import TimedOutError
from odradek.client.network.own_loop import OwnLoop
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.views.changelog import Changelog
from odradek.views.key_formats import key_format, value_format
from odradek.views.reads import KeyRange, RowCodec, TableRow
from odradek.views.rows import changes_of
from odradek.views.windows import windowed

ROWS_FOUND_MAX: Final = 10_000


async def look_up(
    bootstrap_servers: str | list[str] | tuple[str, ...],
    topic: str,
    text: str,
    *,
    key: str = "string",
    value: str = "json",
    windows: str | None = None,
    timeout_s: float = 60.0,
    settings: ClientSettings | None = None,
) -> list[TableRow]:
    """Returns the row of the key that `text` spells, or all its windows; reads all committed records of the topic.

    INVALID_REQUEST for text that is no key, REQUEST_TIMED_OUT after `timeout_s`.
    """
    codec = RowCodec(windowed(key_format(key), windows), value_format(value))
    wanted = codec.range_of_text(text)
    loop = OwnLoop("odradek-lookup")
    changelog = Changelog(
        bootstrap_servers, topic, settings=settings or {}, clock=None, entropy=None, post=loop.post
    )
    loop.begin()
    changelog.start()
    try:
        rows = await _read(changelog, codec, wanted, changelog.clock.monotonic() + timeout_s)
    finally:
        await changelog.close()
    return [codec.row((stored, rows[stored])) for stored in sorted(rows)]


async def _read(
    changelog: Changelog, codec: RowCodec, wanted: KeyRange, deadline: float
) -> dict[bytes, bytes]:
    log = await changelog.log_ends(await changelog.partitions())
    changelog.read_from({partition: (start, -1) for partition, start in log.starts.items()})
    rows: dict[bytes, bytes] = {}
    while True:
        positions = changelog.positions()
        changelog.note(positions)
        if all(positions.get(partition, -1) >= end for partition, end in log.ends.items()):
            return rows
        left_s = deadline - changelog.clock.monotonic()
        if left_s <= 0:
            raise TimedOutError(
                f"{changelog.topic} could not be read to its end in time: serve a view of it instead"
            )
        chunk = await changelog.next_chunk(left_s)
        columns = None if chunk is None else changelog.columns_of(chunk)
        if columns is not None and columns.row_count:
            _note_found(rows, changes_of(columns, codec.keys).rows, wanted)


def _note_found(rows: dict[bytes, bytes], changed: Mapping[bytes, bytes | None], wanted: KeyRange) -> None:
    for stored, value in changed.items():
        if not wanted.contains(stored):
            continue
        if value is None:
            rows.pop(stored, None)
        elif len(rows) < ROWS_FOUND_MAX or stored in rows:
            rows[stored] = value
        else:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"there are more than {ROWS_FOUND_MAX} rows of this key: serve a view, and ask it for a part of them",
            )
