"""A stream that is cut into batches, and restarted at each cut, writes what the whole batch writes: random programs."""

from __future__ import annotations

import random

import pytest
from tests.streams.oracle.comparison import Outputs, compare_written
from tests.streams.oracle.direct import DirectProgram
from tests.streams.oracle.documents import text
from tests.streams.oracle.generator import GOALS, Document, generate

CUTS = 3


@pytest.mark.parametrize("goal", range(len(GOALS)), ids=list(GOALS))
def test_a_program_that_is_restarted_anywhere_writes_the_same(goal: int) -> None:
    for round_ in range(3):
        document = generate(goal + round_ * len(GOALS), round_)
        whole = DirectProgram(document).batch(document["inputs"])
        places = random.Random(goal).sample(range(len(document["inputs"]) + 1), CUTS)
        cut = restarted(document, sorted(places))
        assert not compare_written(document, cut, whole), text(document)


def restarted(document: Document, places: list[int]) -> Outputs:
    """What is written by programs of which each goes on with what the one before it has saved, and nothing else."""
    written: Outputs = {}
    state = None
    begin = 0
    for end in [*places, len(document["inputs"])]:
        program = DirectProgram(document, state)
        for topic, records in program.batch(document["inputs"][begin:end], begin).items():
            written.setdefault(topic, []).extend(records)
        state, begin = program.saved(), end
    return written
