"""Which source of a query waits for records, so that a batch begins when they come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.streams import Processor, Stream, Streams
from odradek.streams.plan.operators import TopicSource
from odradek.streams.prompt_batches import prompt_batches


def waits(app: Streams, interval: str = "500 milliseconds") -> dict[str, dict[str, str]]:
    found_waits = prompt_batches(app.program.ends, interval)
    assert all(isinstance(source, TopicSource) for source in found_waits)
    return {source.topic: dict(options) for source, options in found_waits.items()}


def stream(app: Streams, topic: str = "visits") -> Stream:
    return app.stream(topic, key="STRING", value="STRING")


def test_the_first_source_waits_for_all() -> None:
    app = Streams("shop")
    users = app.table("users", key="STRING", value="STRING")
    orders = stream(app, "orders").merge(stream(app, "more"))
    orders.join(users, select="value", prefix="r_").to("out")
    assert waits(app) == {"orders": {"triggerWaitMs": "475", "triggerWaitTopics": "more,users"}}


def test_one_source_waits_for_its_own_topic() -> None:
    app = Streams("shop")
    stream(app).group_by_key().count().to("out")
    assert waits(app) == {"visits": {"triggerWaitMs": "475"}}
    assert waits(app, "1 second") == {"visits": {"triggerWaitMs": "975"}}


@pytest.mark.parametrize(
    "interval", ["0 seconds", "25 milliseconds", "2 seconds", "1 minute", "interval 1 day", ""]
)
def test_other_intervals_are_kept_to_the_clock(interval: str) -> None:
    app = Streams("shop")
    stream(app).group_by_key().count().to("out")
    assert waits(app, interval) == {}


class OnTheClock(Processor):
    def on_wall_clock_timer(self, key: object, time: int, state: object, timers: object) -> None:
        return None


class InStreamTime(Processor):
    def on_timer(self, key: object, time: int, state: object, timers: object) -> None:
        return None


@pytest.mark.parametrize(
    ("program", "is_waiting"),
    [
        (lambda rows: rows.group_by_key().process(OnTheClock(), schema="STRING"), False),
        (lambda rows: rows.group_by_key().process(InStreamTime(), schema="STRING"), True),
        (
            lambda rows: (
                rows.group_by_key().window("1 minute", idle_timeout="1 minute").final().count().to_stream()
            ),
            False,
        ),
        (lambda rows: rows.group_by_key().window("1 minute").final().count().to_stream(), True),
    ],
)
def test_what_is_due_on_the_clock_has_its_triggers(
    program: Callable[[Stream], Stream], is_waiting: bool
) -> None:
    app = Streams("shop")
    program(stream(app)).to("out")
    assert bool(waits(app)) is is_waiting
