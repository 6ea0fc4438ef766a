"""The short form of `python -m tests.faults.power`: some power cuts, and a planted loss that must be seen."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from tests.faults.power.images import absent, room
from tests.faults.power.run import ONE, ONE_AFTER_ANOTHER, TOGETHER, Terms, run


@pytest.fixture(autouse=True)
def _images_can_be_mounted() -> None:
    reason = absent()
    if reason is not None:
        pytest.skip(f"absent: {reason}")


def test_nothing_acknowledged_is_lost_by_power_cuts() -> None:
    with room() as directory:
        run_result = run(
            Terms(cuts=3, seed=7, per_second=300, kinds=(TOGETHER, ONE_AFTER_ANOTHER, ONE)), directory
        )

    assert run_result.is_clean, run_result.text()
    assert run_result.checked > 100


def test_the_method_sees_what_is_acknowledged_before_it_is_durable() -> None:
    terms = Terms(
        cuts=1, seed=7, per_second=300, kinds=(TOGETHER,), settings={"log.flush.before.ack": "false"}
    )
    with room() as directory:
        run_result = run(terms, directory)

    assert run_result.lossy_cuts == 1, run_result.text()
