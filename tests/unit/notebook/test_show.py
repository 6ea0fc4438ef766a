"""`odradek.show` against a broker: a topic, a group's lag and a pipeline as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import odradek
from odradek import Consumer, KafkaError, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from odradek.client.admin.admin import Admin
from odradek.notebook.picture import Picture
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.store import PipelineStore
from odradek.testing import LocalBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic("orders", partitions=2)])
        with Producer(broker.address) as producer:
            for _ in range(3):
                producer.send("orders", b"x", partition=0)
            producer.send("orders", b"x", partition=1)
        yield broker.address


def cells(picture: Picture) -> list[tuple[object, ...]]:
    return [row.cells for row in picture.rows]


def test_a_topic_shows_its_partitions(servers: str) -> None:
    picture = odradek.show(servers, topic="orders")
    assert cells(picture) == [(0, 1, "1", 0, 3, 3), (1, 1, "1", 0, 1, 1)]
    assert [row.share for row in picture.rows] == [1.0, 1 / 3]
    assert picture.problems == ()
    assert ("offsets held", "4") in picture.facts
    assert "Topic orders" in picture.html


def test_a_group_shows_its_lag_the_largest_first(servers: str) -> None:
    with Consumer(servers, group_id="billing", enable_auto_commit=False) as consumer:
        consumer.commit(
            {
                TopicPartition("orders", 0): OffsetAndMetadata(2),
                TopicPartition("orders", 1): OffsetAndMetadata(1),
            }
        )
    picture = odradek.show(servers, group="billing")
    assert cells(picture) == [("orders", 0, 2, 3, 1, None), ("orders", 1, 1, 1, 0, None)]
    assert ("lag", "1 records") in picture.facts
    assert picture.problems == ("The group has no member, and records wait.",)


def test_a_pipeline_that_no_supervisor_has_seen_says_so(servers: str) -> None:
    version = PipelineVersion(number=1, program="totals.py", made_ms=1, checkpoint="totals")
    with PipelineStore(servers) as store:
        store.change("totals", lambda _: PipelineDocument(name="totals", versions=(version,)))
    picture = odradek.show(servers, pipeline="totals")
    assert picture.title == "Pipeline totals"
    assert ("state", "unknown: no supervisor has seen it") in picture.facts
    with pytest.raises(KafkaError, match="absent"):
        odradek.show(servers, pipeline="absent")


def test_what_is_not_there_is_an_error(servers: str) -> None:
    with pytest.raises(KafkaError):
        odradek.show(servers, topic="absent")
    for given in ({}, {"topic": "orders", "group": "billing"}):
        with pytest.raises(ValueError, match="one thing"):
            odradek.show(servers, **given)
