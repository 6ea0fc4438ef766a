"""A sink's decision as offsets of its group: what goes in comes out, and what is no decision is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.groups.values import OffsetAndMetadata
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.exactly_once.decision import (
    DECISIONS_TOPIC,
    PARTICIPANTS_MAX,
    Decision,
    Namespace,
    Participant,
    decision_in,
    participant_prefix,
)

METADATA_MAX_BYTES = 4_096
"""offset.metadata.max.bytes of Kafka's brokers."""

participants = st.builds(
    Participant,
    partition=st.integers(0, 2**32 - 1),
    attempt=st.integers(0, 2**16 - 1),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
)


def decision(*members: Participant, batch: int = 7) -> Decision:
    namespace = Namespace(sink_id="s", incarnation="0123abcd", side=1)
    return Decision(query="q" * 36, batch=batch, namespace=namespace, participants=members)


def many(count: int) -> list[Participant]:
    return [
        Participant(partition=number, attempt=0, producer_id=2**62 + number, producer_epoch=number % 9)
        for number in range(count)
    ]


@given(st.lists(participants, max_size=400), st.integers(0, 2**62))
def test_a_decision_comes_back_as_it_was(members: list[Participant], batch: int) -> None:
    made = decision(*members, batch=batch)
    assert decision_in("s", made.to_offsets()) == made


@pytest.mark.parametrize("count", [0, 1, 170, 171, PARTICIPANTS_MAX])
def test_its_metadata_fits_what_brokers_take(count: int) -> None:
    offsets = decision(*many(count)).to_offsets()
    assert max(len(each.metadata) for each in offsets.values()) < METADATA_MAX_BYTES
    found = decision_in("s", offsets)
    assert found is not None
    assert found.participants == tuple(many(count))


def test_more_tasks_than_it_can_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="coalesce"):
        decision(*many(PARTICIPANTS_MAX + 1)).to_offsets()


def test_the_rest_of_a_larger_decision_before_it_is_not_taken_for_its_own() -> None:
    before = decision(*many(400), batch=6).to_offsets()
    made = decision(*many(3))
    assert decision_in("s", before | made.to_offsets()) == made
    larger = decision(*many(300)).to_offsets()
    del larger[TopicPartition(DECISIONS_TOPIC, 1)]
    with pytest.raises(KafkaError, match="names 300 transactions and holds 170"):
        decision_in("s", before | larger)


def test_the_end_mark_counts_for_its_own_batch_only() -> None:
    made = decision(*many(2))
    ended = decision_in("s", made.to_offsets() | made.end_mark())
    assert ended is not None
    assert ended.is_ended
    older = decision_in("s", made.to_offsets() | decision(batch=6).end_mark())
    assert older is not None
    assert not older.is_ended


def test_no_offsets_are_no_decision() -> None:
    assert decision_in("s", {}) is None
    assert decision_in("s", {TopicPartition(DECISIONS_TOPIC, 0): None}) is None


@pytest.mark.parametrize("text", ["", "ended", "[]", "{}", '{"format":2,"query":"q","transactions":0}'])
def test_what_somebody_else_wrote_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="no decision of an exactly-once sink"):
        decision_in("s", {TopicPartition(DECISIONS_TOPIC, 0): OffsetAndMetadata(offset=1, metadata=text)})


def test_transactional_ids_of_one_sink_are_never_those_of_another() -> None:
    name = Namespace(sink_id="s-1", incarnation="0123abcd", side=0).transactional_id(3, 0)
    assert not name.startswith(participant_prefix("s"))
    assert name.startswith(participant_prefix("s-1"))
