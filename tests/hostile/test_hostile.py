"""The short form of `make hostile`: what one stranger does harms no one else."""

from __future__ import annotations

import sys

import pytest
from tests.hostile.attack import Attack, Scale
from tests.hostile.attacks import ATTACKS
from tests.hostile.table import table
from tests.hostile.trial import try_attack

_SHORT = Scale(is_full=False, seed=10, seconds=8.0, frame_count=6_000, frame_seconds=10.0)
_PLACES = [(attack, brokers) for attack in ATTACKS for brokers in attack.brokers_in_short]


@pytest.mark.parametrize(
    ("attack", "brokers"), _PLACES, ids=[f"{attack.name}, {brokers}" for attack, brokers in _PLACES]
)
def test_no_one_else_is_harmed_by(attack: Attack, brokers: int) -> None:
    outcome = try_attack(attack, brokers, _SHORT, lambda line: print(line, file=sys.stderr))  # noqa: T201

    assert not outcome.wrongs, table([outcome], is_strict=False)
    if outcome.absent is None:
        assert outcome.latencies["during"].count > 0
