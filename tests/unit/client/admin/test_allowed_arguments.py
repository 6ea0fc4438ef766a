"""What the check of the admin client's arguments lets through, what it makes of it, and how little it does for each element."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import FrameType
from typing import Any, Literal

import numpy as np
import pytest

from odradek import NewTopic, TopicPartition
from odradek.client import ConfigResource, WrongArgumentError
from odradek.client.admin.arguments import checked_value
from odradek.client.admin.types import ResourceType

MANY = 100_000
STEPS_MAX = 1_000
"""The most steps that a check may take, for any number of elements."""
PAIR_STEPS_MAX = 7
"""For each pair: the calls and returns of `TopicPartition._make`."""


class CountedText(str):
    """A text that counts how often it is formatted."""

    __slots__ = ()
    shown_count = 0

    def __repr__(self) -> str:
        CountedText.shown_count += 1
        return super().__repr__()


def steps_of(value: Any, hint: Any) -> tuple[int, Any]:
    """Returns how many calls and returns the check has, and what it returns."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        checked = checked_value(value, hint, "method: parameter")
    finally:
        sys.setprofile(None)
    return count, checked


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({TopicPartition("t", number): number for number in range(MANY)}, Mapping[TopicPartition, int]),
        ([TopicPartition("t", number) for number in range(MANY)], Iterable[TopicPartition]),
        ([str(number) for number in range(MANY)], Iterable[str] | None),
        ([range(MANY)], Sequence[Sequence[int]]),
    ],
    ids=["mapping", "partitions", "texts", "nested"],
)
def test_plain_elements_are_not_walked_through_one_by_one(value: Any, hint: Any) -> None:
    count, checked = steps_of(value, hint)
    assert count < STEPS_MAX
    assert list(checked) == ([tuple(value[0])] if isinstance(next(iter(value)), range) else list(value))


def test_a_pair_costs_the_making_of_a_partition_and_no_more() -> None:
    pairs = {("t", number): number for number in range(MANY)}
    count, checked = steps_of(pairs, Mapping[TopicPartition, int])
    assert count < PAIR_STEPS_MAX * MANY
    assert checked == pairs
    assert {type(key) for key in checked} == {TopicPartition}


def test_the_path_of_an_element_is_formatted_for_an_error_alone() -> None:
    CountedText.shown_count = 0
    levels = {CountedText(f"logger-{number}"): "INFO" for number in range(100)}
    assert checked_value(levels, Mapping[str, str], "m: levels") == levels
    assert CountedText.shown_count == 0
    levels[CountedText("last")] = 5  # type: ignore[assignment]
    with pytest.raises(WrongArgumentError, match=r"\Am: levels\['last'\] must be str, not int\Z"):
        checked_value(levels, Mapping[str, str], "m: levels")
    assert CountedText.shown_count == 1


def test_one_wrong_element_among_plain_ones_is_named() -> None:
    offsets: dict[Any, Any] = {TopicPartition("t", number): number for number in range(10)}
    offsets["u", "7"] = 1
    with pytest.raises(
        WrongArgumentError, match=r"\Am: p, key \('u', '7'\),\.partition must be int, not str\Z"
    ):
        checked_value(offsets, Mapping[TopicPartition, int], "m: p")
    with pytest.raises(WrongArgumentError, match=r"\Am: p\[1\]\.partition must be int, not bool\Z"):
        checked_value([("t", 0), ("t", True)], Iterable[TopicPartition], "m: p")


@pytest.mark.parametrize(
    ("value", "hint", "wanted"),
    [
        ([["t", 0]], Iterable[TopicPartition], (TopicPartition("t", 0),)),
        (
            [("t", np.int32(3)), ["t", 1]],
            Iterable[TopicPartition],
            (TopicPartition("t", 3), TopicPartition("t", 1)),
        ),
        ([2], Iterable[ResourceType], (ResourceType.TOPIC,)),
        (np.int64(4), ResourceType | None, ResourceType.BROKER),
        (["t", 1], TopicPartition | str, TopicPartition("t", 1)),
        (np.float32(0.5), float, 0.5),
        (Fraction(5, 2), float | None, 2.5),
        (np.int64(5), float, 5.0),
        (np.bool_(True), bool, True),
        (np.bool_(False), bool | None, False),
    ],
    ids=repr,
)
def test_what_stands_for_a_value_becomes_it(value: Any, hint: Any, wanted: Any) -> None:
    checked = checked_value(value, hint, "m: p")
    assert checked == wanted
    assert type(checked) is type(wanted)
    if isinstance(wanted, tuple):
        assert [type(element) for element in checked] == [type(element) for element in wanted]


@pytest.mark.parametrize(
    ("value", "hint"),
    [(np.bool_(True), float), (np.bool_(True), int), (True, ResourceType), ("2", ResourceType), (1j, float)],
)
def test_what_only_looks_like_a_value_is_refused(value: Any, hint: Any) -> None:
    with pytest.raises(WrongArgumentError, match=r"\Am: p must be [^\n]*\Z"):
        checked_value(value, hint, "m: p")


def test_the_value_of_a_member_becomes_the_member_in_a_field() -> None:
    resource = ConfigResource(2, "t")  # type: ignore[arg-type]
    checked = checked_value(resource, ConfigResource, "m: p")
    assert type(checked.type) is ResourceType
    assert str(checked) == "topic t"
    assert type(resource.type) is int  # the user's own object stays as it is
    assert checked_value(checked, ConfigResource, "m: p") is checked


@dataclasses.dataclass(frozen=True)
class OwnTopic(NewTopic):
    owner: Unknown | None = None  # type: ignore[name-defined]  # noqa: F821
    labels: list[str] = dataclasses.field(default_factory=list, init=False)
    tier: Literal["hot", "cold"] = "hot"


def test_a_subclass_may_have_fields_of_its_own() -> None:
    plain = OwnTopic("t", 3, owner="ann", tier="cold")
    assert checked_value(plain, NewTopic | str, "m: p") == plain
    plain.labels.append("x")
    converted = OwnTopic("t", np.int64(3), owner="ann", tier="cold")  # type: ignore[arg-type]
    converted.labels.append("x")
    checked = checked_value(converted, NewTopic | str, "m: p")
    assert checked == plain
    assert (type(checked), type(checked.partitions)) == (OwnTopic, int)
    with pytest.raises(WrongArgumentError, match=r"\Am: p\.partitions must be int, not str\Z"):
        checked_value(OwnTopic("t", "3"), NewTopic, "m: p")  # type: ignore[arg-type]
