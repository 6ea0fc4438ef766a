"""A run's ratios beside the published ones: what moved, what did not, and what cannot be said."""

from collections.abc import Sequence
from typing import Any

import pytest
from benchmarks import movement, published
from benchmarks.broker import hot_path
from benchmarks.measures import FULL, QUICK
from benchmarks.movement import chance_of_parting, compare, differences
from benchmarks.published import Published
from benchmarks.samples import Better, Sample

MACHINE = {"cores": 2, "cpu": "a processor", "memory_gb": 8, "kernel": "6.1", "python": "3.11.7"}


def run(peer_version: str = "4.4.0", **machine: object) -> dict[str, Any]:
    return {
        "plan": "quick",
        "finished": "yesterday",
        "machine": {**MACHINE, **machine},
        "contenders": {"kafka": {"title": f"Apache Kafka {peer_version}"}},
        "producer": {"client": "confluent-kafka 2.16.1"},
        "consumer": {"client": "kcat"},
    }


def samples(
    ratios: Sequence[float],
    *,
    measure: str = "produce",
    quantity: str = "MB/s",
    better: Better = "higher",
    with_peer: bool = True,
) -> list[Sample]:
    """Rounds in which the peer has 100, and we have the ratio's share of it."""
    values = {"odradek": [100 * ratio for ratio in ratios]}
    if with_peer:
        values["kafka"] = [100.0] * len(ratios)
    return [
        Sample(
            measure=measure,
            condition="1 KiB",
            quantity=quantity,
            better=better,
            contender=contender,
            round_number=number,
            value=value,
        )
        for contender, of_rounds in values.items()
        for number, value in enumerate(of_rounds)
    ]


def page(before: Sequence[Sample], facts: dict[str, Any] | None = None) -> Published:
    return published.replaced(Published([], []), facts or run(), before)


@pytest.mark.parametrize(
    ("better", "now", "verdict"),
    [
        ("higher", [1.3, 1.4, 1.5], "better"),
        ("higher", [0.7, 0.8, 0.89], "worse"),
        ("higher", [1.2, 1.4, 1.5], "same"),  # 1.2 was published
        ("higher", [0.5, 1.1, 3.0], "same"),
        ("lower", [0.7, 0.8, 0.89], "better"),
        ("lower", [1.3, 1.4, 1.5], "worse"),
    ],
)
def test_a_row_moved_if_the_ranges_of_ratios_have_nothing_in_common(
    better: Better, now: list[float], verdict: str
) -> None:
    old = page(samples([0.9, 1.0, 1.2], better=better))
    (row,) = compare(old, run(), samples(now, better=better), "kafka").movements
    assert row.verdict == verdict
    assert row.row == ("produce", "1 KiB", "MB/s", "odradek")
    assert (row.published.median, row.now.median) == pytest.approx((1.0, sorted(now)[1]))


def test_the_medians_alone_decide_nothing() -> None:
    old = page(samples([1.0, 1.0, 2.0]))
    (row,) = compare(old, run(), samples([2.0, 3.0, 3.0]), "kafka").movements
    assert row.verdict == "same"


def test_one_round_beside_three_says_nothing() -> None:
    old = page(samples([0.9, 1.0, 1.2]))
    (row,) = compare(old, run(), samples([5.0]), "kafka").movements
    assert (row.verdict, row.chance) == ("too few rounds", 0.5)


@pytest.mark.parametrize(("published_rounds", "rounds", "chance"), [(3, 3, 0.1), (3, 5, 1 / 28), (1, 1, 1.0)])
def test_ranges_part_by_chance_the_less_the_more_rounds_there_are(
    published_rounds: int, rounds: int, chance: float
) -> None:
    assert chance_of_parting(published_rounds, rounds) == pytest.approx(chance)


def test_the_chance_is_that_of_all_orders_of_the_values() -> None:
    """Counted: which of the six places of three and three values belong to the one side."""
    from itertools import combinations

    apart = [places for places in combinations(range(6), 3) if max(places) == 2 or min(places) == 3]
    assert chance_of_parting(3, 3) == len(apart) / len(list(combinations(range(6), 3)))


def test_what_differs_in_machine_and_versions_stands_beside_the_row() -> None:
    old = page(samples([0.9, 1.0, 1.2]), run("4.3.1", cpu="another", kernel="6.1"))
    (row,) = compare(old, run("4.4.0"), samples([1.0, 1.1, 1.2]), "kafka").movements
    assert row.conditions == (
        "cpu: another -> a processor",
        "kafka: Apache Kafka 4.3.1 -> Apache Kafka 4.4.0",
    )
    text = movement.as_text(compare(old, run("4.4.0"), samples([1.0, 1.1, 1.2]), "kafka"))
    assert "[1] cpu: another -> a processor; kafka: Apache Kafka 4.3.1 -> Apache Kafka 4.4.0" in text


def test_conditions_are_those_of_the_run_that_a_row_was_published_of() -> None:
    first = page(samples([1.0, 1.0, 1.0], measure="produce"), run(cpu="an old one"))
    old = published.replaced(first, run(), samples([1.0, 1.0, 1.0], measure="consume"))
    now = [*samples([1.0] * 3, measure="produce"), *samples([1.0] * 3, measure="consume")]
    by_measure = {row.row[0]: row.conditions for row in compare(old, run(), now, "kafka").movements}
    assert by_measure == {"produce": ("cpu: an old one -> a processor",), "consume": ()}


def test_what_a_published_run_does_not_say_is_no_difference() -> None:
    assert differences({"plan": "quick"}, run()) == ()
    assert differences(None, run()) == ()


def test_rows_without_a_partner_are_named_and_not_compared() -> None:
    old = page(samples([1.0] * 3, measure="produce"))
    now = [*samples([1.0] * 3), *samples([1.0] * 3, measure="small requests")]
    comparison = compare(old, run(), now, "kafka")
    assert [row.row[0] for row in comparison.movements] == ["produce"]
    assert [row[0] for row in comparison.unpublished] == ["small requests"]
    assert "Without a published ratio: small requests." in movement.as_text(comparison)


def test_without_the_peer_nothing_can_be_compared() -> None:
    old = page(samples([1.0] * 3))
    comparison = compare(old, run(), samples([9.0] * 3, with_peer=False), "kafka")
    assert comparison.movements == ()
    assert "no row has a ratio in both" in movement.as_text(comparison)


def test_the_table_begins_with_what_is_worse_and_counts() -> None:
    rows = {"a": [1.0, 1.0, 1.0], "b": [0.5, 0.5, 0.5], "c": [2.0, 2.0, 2.0]}
    old = page([entry for name in rows for entry in samples([1.0] * 3, measure=name)])
    now = [entry for name, ratios in rows.items() for entry in samples(ratios, measure=name)]
    lines = movement.as_text(compare(old, run(), now, "kafka")).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| worse", "| better", "| same"]
    assert "| worse | b, 1 KiB (odradek) | MB/s | 1.00 (1.00–1.00) | 0.50 (0.50–0.50) | 0.50 |  |" in lines
    assert (
        "moved: 1 worse, 1 better, 1 same. With so few rounds, about 0 would have moved by chance alone."
        in lines
    )


def test_the_hot_path_is_measured_in_less_than_five_minutes_and_of_published_conditions() -> None:
    assert hot_path.planned_seconds(hot_path.HOT_PATH, contenders=3) < hot_path.SECONDS_MAX
    assert (
        hot_path.planned_seconds(QUICK, contenders=3) > hot_path.SECONDS_MAX
    )  # the estimate notices what is longer
    assert set(hot_path.HOT_PATH.counts) <= set(QUICK.counts)
    assert hot_path.HOT_PATH.acks == FULL.acks[-1:]
