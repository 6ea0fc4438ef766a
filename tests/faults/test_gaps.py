import pytest
from tests.faults.gaps import Gap, by_fault


def test_a_gap_belongs_to_the_last_fault_that_had_begun() -> None:
    faults = [(10.0, "kill"), (20.0, "stop"), (30.0, "kill")]
    gaps = [Gap(9.95, 11.0), Gap(15.0, 16.0), Gap(19.95, 25.0), Gap(31.0, 34.0), Gap(1.0, 2.0)]
    results = by_fault(gaps, faults)
    assert results == pytest.approx({"stop": 5.05, "kill": 3.0, "the start": 1.0})
    assert list(results) == ["stop", "kill", "the start"], "the longest first"


def test_without_gaps_there_is_nothing_to_tell() -> None:
    assert by_fault([], [(10.0, "kill")]) == {}
