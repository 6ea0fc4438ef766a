"""Each planted bug is caught: without that, a sweep that finds nothing proves nothing."""

from __future__ import annotations

import pytest

from odradek.testing.sim.mutants import BANK, Mutant
from odradek.testing.sim.sweep import hunt

pytestmark = pytest.mark.sim
SEEDS = 300


@pytest.mark.parametrize("mutant", BANK, ids=lambda mutant: mutant.name)
def test_the_planted_bug_is_caught(mutant: Mutant) -> None:
    assert hunt(mutant, range(SEEDS)).found is not None, mutant.mistake


def test_a_planted_bug_is_gone_after_the_hunt() -> None:
    before = [vars(patcher.getter()).get(patcher.attribute) for m in BANK for patcher in m.patches()]
    for mutant in BANK:
        with mutant.planted():
            pass
    after = [vars(patcher.getter()).get(patcher.attribute) for m in BANK for patcher in m.patches()]
    assert before == after
