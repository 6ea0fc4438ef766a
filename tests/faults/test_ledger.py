"""What is counted as lost, and as being elsewhere than it was said to be."""

from __future__ import annotations

from tests.faults.ledger import Ledger


def test_a_record_that_was_acknowledged_without_its_place_must_be_there_wherever_it_is() -> None:
    ledger = Ledger()
    ledger.sent()

    ledger.acknowledged(0, 2, None)

    assert (ledger.acknowledged_count, ledger.placeless_count) == (1, 1)
    assert not ledger.contradicts(0, 2, 17)
    assert ledger.lost(lambda _: False) == [0]


def test_a_record_that_no_one_answered_for_may_be_missing_and_may_be_anywhere() -> None:
    ledger = Ledger()
    ledger.sent()

    assert ledger.acknowledged_count == 0
    assert not ledger.contradicts(0, 1, 5)
    assert ledger.lost(lambda _: False) == []


def test_a_record_elsewhere_than_it_was_said_to_be_is_noticed() -> None:
    ledger = Ledger()
    ledger.sent()

    ledger.acknowledged(0, 1, 5)

    assert ledger.contradicts(0, 1, 6)
    assert ledger.contradicts(0, 2, 5)
    assert not ledger.contradicts(0, 1, 5)
