"""The checker of histories sees each kind of broken promise, and nothing where there is none."""

from __future__ import annotations

import pytest
from tests.simulation.ledger import Ledger, ReadRecord, SentRecord

from odradek.testing.sim import ViolationError

pytestmark = pytest.mark.sim


def ledger() -> Ledger:
    """Two producers have sent three records each."""
    made = Ledger("t-0")
    for number in range(3):
        made.send(f"i{number}".encode(), SentRecord("idempotent", number, True))
        made.send(f"p{number}".encode(), SentRecord("plain", number, False))
    return made


def found(*values: str, start: int = 0) -> list[ReadRecord]:
    return [ReadRecord(offset, value.encode()) for offset, value in enumerate(values, start)]


def check(made: Ledger, *values: str, start: int = 0) -> None:
    made.check(found(*values, start=start), start_offset=start, end_offset=start + len(values))


def test_a_history_that_keeps_every_promise_passes() -> None:
    made = ledger()
    made.acknowledge(b"i0", 0)
    made.acknowledge(b"p2", 2)
    made.observe(found("i0", "p0"), 2)
    check(made, "i0", "p0", "p2", "i1")


def test_a_record_in_doubt_may_be_there_or_not() -> None:
    check(ledger(), "i0")
    check(ledger())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (("i0",), "below the high watermark"),
        (("p0", "i0"), "became b'p0'|is gone"),
        (("i0", "i1", "i0"), "twice"),
        (("i0", "i2"), "follows record 0"),
        (("i1", "i0"), "became|stands behind"),
        (("i0", "p1", "p0"), "stands behind record 1"),
        (("i0", "x"), "which no producer sent"),
    ],
)
def test_what_is_lost_moved_repeated_reordered_or_invented_is_seen(
    values: tuple[str, ...], problem: str
) -> None:
    made = ledger()
    made.acknowledge(b"i0", 0)
    if values == ("i0",):
        made.acknowledge(b"i1", 1)
    with pytest.raises(ViolationError, match=problem):
        check(made, *values)


def test_a_hole_is_seen() -> None:
    with pytest.raises(ViolationError, match=r"offsets 0, 2 are there, not 0 to 2"):
        ledger().check([*found("i0"), *found("i1", start=2)], start_offset=0, end_offset=3)


def test_records_go_from_the_front_only_when_someone_deleted_them() -> None:
    made = ledger()
    made.acknowledge(b"i0", 0)
    with pytest.raises(ViolationError, match="nothing above 0 was deleted"):
        check(made, "i1", start=1)
    made.may_remove_below(1)
    check(made, "i1", start=1)


def test_what_a_reader_saw_must_stay() -> None:
    made = ledger()
    made.observe(found("p0", "p1"), 2)
    with pytest.raises(ViolationError, match="now holds b'p2'"):
        made.observe(found("p0", "p2"), 2)
    with pytest.raises(ViolationError, match="the committed record b'p1' at 1 became b'i0'"):
        check(made, "p0", "i0")


def test_readers_get_nothing_above_the_high_watermark() -> None:
    with pytest.raises(ViolationError, match="above the high watermark"):
        ledger().observe(found("p0", "p1"), 1)


def test_two_acknowledgements_must_agree() -> None:
    made = ledger()
    made.acknowledge(b"i0", 0)
    made.acknowledge(b"i0", 0)
    with pytest.raises(ViolationError, match="acknowledged at 0 and again at 5"):
        made.acknowledge(b"i0", 5)
    with pytest.raises(ViolationError, match="where b'i0' was read"):
        made.acknowledge(b"p0", 0)
