"""Topics of a real broker, and views of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from odradek import Admin, NewTopic, Producer
from odradek.testing.local import LocalBroker
from odradek.views import TableView
from odradek.views.store import StoreError

MakeTopic = Callable[..., str]
OpenView = Callable[..., TableView]
_numbers = itertools.count()


@pytest.fixture
def make_topic(odradek_broker: LocalBroker) -> MakeTopic:
    """`make_topic(partitions=3, name=..., **configs)`: a compacted topic."""

    def make(partitions: int = 1, name: str | None = None, **configs: str) -> str:
        topic = name or f"table-{next(_numbers)}"
        settings = {"cleanup.policy": "compact", **configs}
        with Admin(odradek_broker.address) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, configs=settings)])
        return topic

    return make


@pytest.fixture
def send(odradek_broker: LocalBroker) -> Callable[..., None]:
    """`send(topic, {key: value, ...})`: bytes; a value of None is a tombstone."""

    def send_rows(topic: str, rows: dict[Any, bytes | None], **more: Any) -> None:
        with Producer(odradek_broker.address) as producer:
            for key, value in rows.items():
                producer.send(topic, value, key=key, **more)

    return send_rows


@pytest.fixture
def open_view(odradek_broker: LocalBroker) -> Iterator[OpenView]:
    """`open_view(topic, ...)`: waits until it is complete, and is closed after the test."""
    views: list[TableView] = []

    def open_one(topic: str, **more: Any) -> TableView:
        views.append(TableView.open(odradek_broker.address, topic, **{"timeout_s": 60, **more}))
        return views[-1]

    yield open_one
    for view in views:
        with suppress(StoreError):  # a test may have taken its directory away
            view.close()
