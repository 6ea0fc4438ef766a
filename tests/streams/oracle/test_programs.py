"""Our programs write what Kafka Streams wrote: the recorded ones; and a few fresh ones where Kafka is built."""

from __future__ import annotations

import itertools

import pytest
from tests.streams.oracle.allowed import allowance
from tests.streams.oracle.comparison import Outputs, compare_written
from tests.streams.oracle.documents import text
from tests.streams.oracle.generator import Document, generate
from tests.streams.oracle.kafka import KafkaOracle
from tests.streams.oracle.ours import OurDriver, missing
from tests.streams.oracle.recording import recorded

FRESH_PROGRAMS = 8
FIRST_SEED = 30
"""Always the same: `make oracle` looks for new differences, and a test that fails now and then helps no one."""
RECORDED = [
    pytest.param(document, outputs, id=f"{document['seed']} {document['goal']}")
    for document, outputs in recorded()
]


@pytest.mark.spark
@pytest.mark.parametrize(("document", "theirs"), RECORDED)
def test_a_recorded_program_writes_what_kafka_wrote(
    document: Document, theirs: Outputs, ours: OurDriver
) -> None:
    lacking = missing(document)
    if lacking is not None:
        pytest.skip(f"ours has no {lacking} yet")
    _equal(document, ours.answers([document])[0], theirs)


@pytest.mark.spark
def test_fresh_programs_write_what_kafka_writes(ours: OurDriver, kafka: KafkaOracle) -> None:
    documents = (
        document for document in map(generate, itertools.count(FIRST_SEED)) if missing(document) is None
    )
    for document in itertools.islice(documents, FRESH_PROGRAMS):
        _equal(document, ours.answers([document])[0], kafka.answer(document))


def _equal(document: Document, ours: Outputs | str, theirs: Outputs) -> None:
    assert not isinstance(ours, str), f"{ours}\n{text(document)}"
    faults = [
        str(difference)
        for difference in compare_written(document, ours, theirs)
        if allowance(document, difference) is None
    ]
    assert not faults, "\n".join([text(document), *faults])
