"""The recorded answers cover every operator; Kafka, where it is built, still gives them; failing documents become small."""

from __future__ import annotations

import os

import pytest
from tests.streams.oracle.comparison import compare
from tests.streams.oracle.documents import operators, pruned
from tests.streams.oracle.generator import GOALS, Document, generate
from tests.streams.oracle.kafka import KafkaOracle
from tests.streams.oracle.recording import recorded
from tests.streams.oracle.shrinking import shrink

FRESH_PROGRAMS = 40


def test_the_recorded_programs_reach_every_goal_and_every_operator() -> None:
    documents = [document for document, _ in recorded()]
    assert {document["goal"] for document in documents} == set(GOALS)
    used = set().union(*map(operators, documents))
    assert used >= set().union(*(operators(generate(seed)) for seed in range(3 * len(GOALS))))


def test_kafka_gives_the_recorded_answers_again(kafka: KafkaOracle) -> None:
    for document, outputs in recorded():
        assert not compare(kafka.answer(document), outputs), document["seed"]


def test_kafka_refuses_no_generated_program(kafka: KafkaOracle) -> None:
    first = int.from_bytes(os.urandom(4), "big")
    for seed in range(first, first + FRESH_PROGRAMS):
        kafka.answer(generate(seed))


def test_the_same_seed_makes_the_same_document() -> None:
    assert [generate(seed) for seed in range(50)] == [generate(seed) for seed in range(50)]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_generated_holds_nothing_that_no_output_needs(seed: int) -> None:
    document = generate(seed)
    assert pruned(document) == document


def test_a_failing_document_shrinks_to_what_fails() -> None:
    """The planted fault: an outer join goes wrong as soon as any record is null."""
    large = next(document for document in map(generate, range(2000)) if _fails(document))
    small = shrink(large, lambda documents: [_fails(document) for document in documents])
    assert _fails(small)
    assert len(small["inputs"]) == 1
    assert [node["op"] for node in small["nodes"]].count("to") == 1
    assert len(small["nodes"]) == 4


def _fails(document: Document) -> bool:
    joined = any(node["op"] == "joinTables" and node["how"] == "outer" for node in document["nodes"])
    return joined and any(value is None for _, _, value, _ in document["inputs"])


@pytest.mark.parametrize(
    ("ours", "final"),
    [
        ([["a", ["x", 1], 5], ["a", ["x", 2], 5]], False),
        ([["a", ["x", 2], 6]], True),
        ([["b", ["x", 2], 7]], True),
        ([], True),
    ],
)
def test_a_comparison_tells_other_sequences_and_other_final_values(ours: list[object], final: bool) -> None:
    differences = compare({"out": ours}, {"out": [["a", ["x", 2], 5]]})
    assert differences
    assert any(difference.final for difference in differences) == final


def test_keys_may_come_in_another_order() -> None:
    first, other = [["a", ["x", 1], 5]], [["b", ["x", 1], 5], [["b", 0, 10], None, 7]]
    assert not compare({"out": first + other}, {"out": other + first})
