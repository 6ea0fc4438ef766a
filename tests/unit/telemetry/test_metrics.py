"""Families, and the bound of series."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.telemetry.metrics import Family, Histogram, bounded, gauge, histogram, labels
from odradek.telemetry.process_metrics import process_families


@given(st.lists(st.integers(0, 30), max_size=5), st.integers(1, 60))
def test_what_the_bound_leaves_out_is_counted(sizes: list[int], series_max: int) -> None:
    families = []
    for number, size in enumerate(sizes):
        family = gauge(f"odradek_{number}", "Any.")
        for index in range(size):
            family.add(index, labels(index=index))
        families.append(family)

    *kept, left_out = bounded(families, series_max)

    shown = sum(family.series_count for family in kept)
    assert shown == min(sum(sizes), series_max)
    counts = dict(left_out.samples)
    assert counts.pop("") == sum(sizes) - shown
    assert counts == {
        labels(family=family.name): family.series_count - cut.series_count
        for family, cut in zip(families, kept, strict=True)
        if family.series_count > cut.series_count
    }


def test_a_histogram_is_kept_whole_or_left_out() -> None:
    family = histogram("odradek_seconds", "Seconds.")
    family.add(Histogram((1.0, 2.0)), labels(request="Fetch"))
    family.add(Histogram((1.0, 2.0)), labels(request="Produce"))
    assert family.series_count == 10

    kept, left_out = bounded([family], 9)

    assert [label_text for label_text, _ in kept.samples] == [labels(request="Fetch")]
    assert dict(left_out.samples)[""] == 5


def test_a_copy_of_a_histogram_does_not_change_with_it() -> None:
    filled = Histogram((1.0,))
    filled.add(0.5)
    copied = filled.copy()
    filled.add(2.0)
    assert (copied.counts, copied.total, copied.count) == ([1, 0], 0.5, 1)


def test_the_process_is_described_by_the_usual_names() -> None:
    values: dict[str, Family] = {family.name: family for family in process_families()}
    assert {
        "process_cpu_seconds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_threads",
    } <= values.keys()
    assert all(family.samples[0][1] > 0 for family in values.values())  # type: ignore[operator]
    start = values["process_start_time_seconds"].samples[0][1]
    assert isinstance(start, float)
    assert start > 1_600_000_000
