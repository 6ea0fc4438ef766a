"""Writing one record: by hand, or again as another record was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from markupsafe import Markup, escape
from starlette.responses import Response

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.client.network.errors import explain
from odradek.console.pages.record_forms import offset_of, partition_of
from odradek.console.pages.records import record_at
from odradek.console.pages.topic import known_topic
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.model.safe_text import safe_line

FORM_CHARACTERS_MAX: Final = 1 << 20


async def show(visit: Visit) -> Response:
    """Shows the form; with `partition` and `offset`, filled with that record."""
    topic = await known_topic(visit)
    if "offset" not in visit.query:
        return await _form(visit, {})
    tp = TopicPartition(topic.name, partition_of(visit.query.get("partition", ""), topic))
    record = await record_at(visit, tp, offset_of(visit.query["offset"]))
    if visit.console.options.masks.concerns(record):  # a mask must not be written in place of what it hides
        return await _form(visit, {}, visit.catalogue.text("produce.masked"))
    fields = _fields(record)
    line = "" if fields is not None else visit.catalogue.text("produce.not_text")
    return await _form(visit, fields or {}, line)


async def produce(visit: Visit) -> Response:
    """Writes the record of the form, and leads to it."""
    topic = await known_topic(visit)
    form = visit.form
    try:
        partition = form.get("partition", "").strip()
        tp, offset = await visit.run(
            visit.model.reader.produce(
                topic.name,
                None if "tombstone" in form else _bytes(form.get("value", "")),
                key=_bytes(form["key"]) if form.get("key") else None,
                headers=_headers(visit),
                partition=partition_of(partition, topic) if partition else None,
            )
        )
    except (OdradekError, TimeoutError) as error:
        line = explain(error) if isinstance(error, OdradekError) else visit.catalogue.text("produce.slow")
        return await _form(visit, form, line, 400)
    return visit.redirect(f"/topics/{tp.topic}/records/{tp.partition}/{offset}", "record_written")


async def _form(visit: Visit, fields: Mapping[str, str], line: str = "", status: int = 200) -> Response:
    topic = await known_topic(visit)
    return visit.render(
        "produce.html", status, active="topics", topic=topic, form=fields, line=line, in_lines=in_lines
    )


def in_lines(text: str) -> Markup:
    """Returns the text for a textarea: escaped, but with its line ends and tabs."""
    rows = text.replace("\r\n", "\n").split("\n")
    safe_rows = [Markup("\t").join(escape(safe_line(part)) for part in row.split("\t")) for row in rows]
    return Markup("\n").join(safe_rows)


def _bytes(text: str) -> bytes:
    """Returns the bytes of a field: browsers send the line ends of forms as CR LF."""
    return text.replace("\r\n", "\n").encode()


def _headers(visit: Visit) -> list[tuple[str, bytes | None]]:
    """Returns the headers of the form, a line each: name=value."""
    headers: list[tuple[str, bytes | None]] = []
    for line in visit.form.get("headers", "").splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ConfigError(visit.catalogue.text("error.setting_line", line=line))
        headers.append((name.strip(), value.encode()))
    return headers


def _fields(record: ConsumerRecord) -> dict[str, str] | None:
    """Returns a record as fields of the form; None if a form would change its bytes."""
    headers = [(name, _text(value)) for name, value in record.headers]
    value, key = _text(record.value), _text(record.key)
    if (
        value is None
        or key is None
        or any(
            text is None or "\n" in text or "\n" in name or "=" in name or name != name.strip()
            for name, text in headers
        )
    ):
        return None
    fields = {
        "key": key,
        "value": value,
        "headers": "\n".join(f"{name}={text}" for name, text in headers),
        "partition": str(record.partition),
    }
    if record.value is None:
        fields["tombstone"] = "1"
    return fields


def _text(content: bytes | None) -> str | None:
    """Returns the text of bytes that survive a form as they are: no control or invisible characters."""
    if content is None:
        return ""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    kept = text.replace("\n", "").replace("\t", "")
    return text if len(text) <= FORM_CHARACTERS_MAX and safe_line(kept) == kept else None


PAGES: Final = (ConsolePage(path="/topics/{name}/produce", show=show, act=produce),)
