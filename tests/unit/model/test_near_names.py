from __future__ import annotations

import pytest

from odradek.model.near_names import KEYS_ALIKE, near_hint, near_name

KEYS = ["log.retention.ms", "log.dirs"]


def test_the_nearest_name_is_offered_only_when_it_is_near() -> None:
    assert near_name("log.retenton.ms", KEYS) == "log.retention.ms"
    assert near_name("colour", KEYS) is None
    assert near_name("anything", []) is None


def test_the_case_of_letters_makes_no_difference_and_the_name_is_as_it_is_known() -> None:
    assert near_name("SUBSCIBE", ["subscribe", "topic"]) == "subscribe"
    assert near_name("order", ["ORDERS"]) == "ORDERS"


def test_names_that_share_a_part_are_not_alike_enough_for_keys() -> None:
    known = ["log.retention.bytes"]
    assert near_name("log.cleaner.threads", known, likeness=KEYS_ALIKE) is None
    assert near_name("log.retention.byte", known, likeness=KEYS_ALIKE) == known[0]


@pytest.mark.parametrize(("name", "hint"), [("oders", "; did you mean orders?"), ("zzz", "")])
def test_a_hint_ends_an_error(name: str, hint: str) -> None:
    assert f"there is no topic {name}{near_hint(name, ['orders'])}" == f"there is no topic {name}{hint}"
