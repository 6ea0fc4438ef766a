"""How long a follower has had its records."""

from odradek.replication.replica import Arrivals


def test_a_record_is_as_old_as_the_fetch_that_brought_it() -> None:
    arrivals = Arrivals()
    arrivals.note(10, 100.0)
    arrivals.note(20, 130.0)
    assert [arrivals.age_s(offset, 160.0) for offset in (0, 9, 10, 19)] == [60.0, 60.0, 30.0, 30.0]


def test_no_one_knows_the_age_of_what_was_not_fetched() -> None:
    arrivals = Arrivals()
    assert arrivals.age_s(0, 1.0) is None
    arrivals.note(10, 100.0)
    assert arrivals.age_s(10, 101.0) is None
    arrivals.forget()
    assert arrivals.age_s(0, 101.0) is None


def test_what_comes_within_a_second_counts_as_the_youngest_of_it() -> None:
    arrivals = Arrivals()
    for number in range(1, 31):
        arrivals.note(number, 100.0 + number / 10)
    for offset in range(30):
        true_age_s = 110.0 - (100.0 + (offset + 1) / 10)
        age_s = arrivals.age_s(offset, 110.0)
        assert age_s is not None
        assert true_age_s - 1.0 <= age_s <= true_age_s + 1e-9


def test_marks_are_kept_for_minutes_and_older_records_count_as_younger() -> None:
    arrivals = Arrivals()
    for number in range(1, 10_001):
        arrivals.note(number, float(number))
    assert len(arrivals) <= 301
    age_s = arrivals.age_s(0, 10_000.0)
    assert age_s is not None
    assert age_s <= 300.0
