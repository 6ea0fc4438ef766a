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
    Participant,
    SinkRole,
    decision_in,
    driver_id,
    participant_id,
    sink_of,
)

METADATA_MAX_BYTES = 4_096
"""offset.metadata.max.bytes of Kafka's brokers."""

participants = st.builds(
    Participant,
    writer=st.binary(min_size=6, max_size=6).map(bytes.hex),
    slot=st.integers(0, 2**16 - 1),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
)


def decision(*members: Participant, query: str = "q" * 36, epoch: int = 7) -> Decision:
    return Decision(
        sink_id="s",
        query=query,
        batch=7,
        side=1,
        driver=(2**62, epoch),
        participants=members,
        input_fingerprint="0123456789abcdef",
        is_keyed=True,
    )


def many(count: int) -> list[Participant]:
    return [
        Participant(writer=f"{number:012x}", slot=0, producer_id=2**62 + number, producer_epoch=number % 9)
        for number in range(count)
    ]


@given(st.lists(participants, max_size=400), st.text(min_size=1, max_size=500), st.integers(0, 2**15 - 1))
def test_a_decision_comes_back_as_it_was(members: list[Participant], query: str, epoch: int) -> None:
    made = decision(*members, query=query, epoch=epoch)
    assert decision_in("s", made.to_offsets()) == made


@pytest.mark.parametrize("query", ["q" * 500, "\N{LINEAR B SYLLABLE B008 A}" * 500, '"' * 500])
@pytest.mark.parametrize("count", [0, 1, 64, 65, 224, 225, PARTICIPANTS_MAX])
def test_its_metadata_fits_what_brokers_take(count: int, query: str) -> None:
    offsets = decision(*many(count), query=query).to_offsets()
    assert max(len(offset.metadata.encode()) for offset in offsets.values()) < METADATA_MAX_BYTES
    decided = decision_in("s", offsets)
    assert decided is not None
    assert decided.participants == tuple(many(count))


def test_more_tasks_than_it_can_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="coalesce"):
        decision(*many(PARTICIPANTS_MAX + 1)).to_offsets()


def test_the_rest_of_a_larger_decision_before_it_is_not_taken_for_its_own() -> None:
    before = decision(*many(400), epoch=6).to_offsets()
    made = decision(*many(3))
    assert decision_in("s", before | made.to_offsets()) == made
    larger = decision(*many(300)).to_offsets()
    del larger[TopicPartition(DECISIONS_TOPIC, 1)]
    with pytest.raises(KafkaError, match="names 300 transactions and holds 64"):
        decision_in("s", before | larger)


def test_the_end_mark_counts_for_its_own_decision_only() -> None:
    made = decision(*many(2))
    ended = decision_in("s", made.to_offsets() | made.end_mark())
    assert ended is not None
    assert ended.is_ended
    older = decision_in("s", made.to_offsets() | decision(epoch=6).end_mark())
    assert older is not None
    assert not older.is_ended


def test_no_offsets_are_no_decision() -> None:
    assert decision_in("s", {}) is None
    assert decision_in("s", {TopicPartition(DECISIONS_TOPIC, 0): None}) is None


@pytest.mark.parametrize("text", ["", "ended", "[]", "{}", '{"format":1,"query":"q","transactions":0}'])
def test_what_someone_else_wrote_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="no decision of an exactly-once sink"):
        decision_in("s", {TopicPartition(DECISIONS_TOPIC, 0): OffsetAndMetadata(offset=1, metadata=text)})


def test_transactional_ids_of_one_sink_are_never_those_of_another() -> None:
    name = participant_id("s-1", "0123456789ab", 0, 3)
    assert sink_of(name) == ("s-1", SinkRole.TASK)
    assert sink_of(driver_id("s-1")) == ("s-1", SinkRole.DRIVER)
    assert sink_of(f"{driver_id('s-1')}~mine") is None
    assert sink_of("s-1") is None
