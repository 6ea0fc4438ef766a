"""One topic: its partitions and its settings."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from odradek.client.admin.types import ConfigEntry, ConfigSource
from odradek.console.model.snapshot import TopicDetail, TopicFigures
from odradek.console.pages.topics import page_number, pages_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ErrorCode, KafkaError

PARTITION_ROWS: Final = 100
DETAIL_WAIT_S: Final = 3.0


async def show(visit: Visit) -> Response:
    """Shows the topic: what the model has, and offsets and settings if they come in time."""
    topic = await known_topic(visit)
    detail = await detail_of(visit, topic.name)
    rows = list(visit.snapshot.partitions.of(topic))
    page = page_number(visit.query.get("page", ""), len(rows), PARTITION_ROWS)
    settings = sorted(detail.settings.values(), key=lambda entry: (entry.is_default, entry.name))
    return visit.render(
        "topic.html",
        active="topics",
        topic=topic,
        rows=rows[(page - 1) * PARTITION_ROWS : page * PARTITION_ROWS],
        page=page,
        pages=pages_of(len(rows), PARTITION_ROWS),
        detail=detail,
        settings=settings,
        changed=sum(not entry.is_default for entry in settings),
        source=lambda entry: source_text(visit, entry),
        inherited=lambda entry: inherited_text(visit, entry),
    )


async def known_topic(visit: Visit) -> TopicFigures:
    """Returns the topic that the path names. KafkaError if the cluster has none, or does not show it to this user."""
    await visit.wait_until_read()
    name = visit.request.path_params["name"]
    topic = visit.snapshot.topics.get(name)
    if topic is None:
        line = visit.catalogue.text("topic.unknown", name=name)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, line)
    return topic


async def detail_of(visit: Visit, name: str) -> TopicDetail:
    """Returns offsets and settings; what is not read in time is left out, and the page shows that."""
    try:
        async with asyncio.timeout(DETAIL_WAIT_S):
            return await visit.run(visit.model.topic_detail(name))
    except TimeoutError:
        problem = visit.catalogue.text("topic.slow", time=visit.catalogue.seconds(DETAIL_WAIT_S))
        return TopicDetail(name=name, read_ms=visit.console.clock.wall_ms(), problems=(problem,))


def source_text(visit: Visit, entry: ConfigEntry) -> str:
    """Returns where a setting's value comes from, in words."""
    return visit.catalogue.text(f"source.{entry.source.name.lower()}")


def inherited_text(visit: Visit, entry: ConfigEntry) -> str:
    """Returns what the setting goes back to when the topic's own value is removed, and where that is set; empty: not known."""
    inherited = entry.inherited
    if inherited is None or entry.sensitive or entry.source is not ConfigSource.TOPIC:
        return ""
    return visit.catalogue.text(
        "setting.inherited",
        value="–" if inherited.value is None else inherited.value,
        source=visit.catalogue.text(f"source.{inherited.source.name.lower()}"),
        name=inherited.name,
    )


PAGES: Final = (ConsolePage(path="/topics/{name}", show=show),)
