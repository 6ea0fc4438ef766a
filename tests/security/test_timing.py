"""The survey of timing sees a difference that is there, and none that is not. Times are measured by `timing.py` alone."""

from random import Random

from tests.security.timing import Comparison, compare, decisions

COUNT = 2000


def drawn(seed: int, *, shift: int = 0) -> list[int]:
    random = Random(seed)
    return [round(random.lognormvariate(8, 0.2)) + shift for _ in range(COUNT)]


def test_samples_of_one_distribution_are_alike() -> None:
    comparisons = [Comparison(first=drawn(seed), second=drawn(seed + 1000)) for seed in range(20)]
    assert not any(comparison.is_distinguished for comparison in comparisons)
    assert all(abs(comparison.chance - 0.5) < 0.05 for comparison in comparisons)


def test_a_shift_of_a_twentieth_is_distinguished() -> None:
    comparison = Comparison(first=drawn(1, shift=150), second=drawn(2))
    assert comparison.is_distinguished
    assert comparison.chance > 0.55
    assert comparison.distance_ns > 100


def test_equal_values_are_alike() -> None:
    assert Comparison(first=[5] * 100, second=[5] * 100).p_value == 1.0
    assert Comparison(first=[5] * 100, second=[5] * 100).chance == 0.5


def test_every_pair_of_logins_can_be_run() -> None:
    for pair in decisions().values():
        comparison = compare(*pair, 3, 1)
        assert len(comparison.first) == len(comparison.second) == 3
