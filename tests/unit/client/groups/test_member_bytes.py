"""What members tell each other, byte for byte as Kafka's clients write it."""

from __future__ import annotations

import pytest

from odradek.client.groups.member_bytes import (
    MemberSubscription,
    read_assignment,
    read_generation,
    read_sticky_data,
    read_subscription,
    write_assignment,
    write_generation,
    write_sticky_data,
    write_subscription,
)
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition

A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)

SUBSCRIPTION = bytes.fromhex(
    "0003"  # version
    "00000002 000161 000162"  # topics
    "ffffffff"  # no user data
    "00000001 000161 00000001 00000002"  # owned: a-2
    "00000005"  # generation
    "ffff".replace(" ", "")  # no rack
)
ASSIGNMENT = bytes.fromhex(
    "0003 00000002 000161 00000002 00000000 00000002 000162 00000001 00000001 ffffffff".replace(" ", "")
)
STICKY = bytes.fromhex("00000001 000161 00000002 00000000 00000002 00000007".replace(" ", ""))


def test_a_subscription_in_bytes() -> None:
    subscription = MemberSubscription(topics=("b", "a"), owned=(A2,), generation=5)
    assert write_subscription(subscription) == SUBSCRIPTION
    assert read_subscription(SUBSCRIPTION) == MemberSubscription(topics=("a", "b"), owned=(A2,), generation=5)


def test_an_assignment_in_bytes() -> None:
    assert write_assignment([B1, A2, A0]) == ASSIGNMENT
    assert read_assignment(ASSIGNMENT) == (A0, A2, B1)


def test_sticky_data_in_bytes() -> None:
    assert write_sticky_data([A2, A0], 7) == STICKY
    assert read_sticky_data(STICKY) == ((A0, A2), 7)


def test_sticky_data_of_an_old_client_has_no_generation() -> None:
    assert read_sticky_data(STICKY[:-4]) == ((A0, A2), -1)


@pytest.mark.parametrize("content", [None, b"", b"\x00\x00\x00\x09", STICKY[:9], b"\x7f\xff\xff\xff" * 3])
def test_sticky_data_that_makes_no_sense_is_no_claim(content: bytes | None) -> None:
    assert read_sticky_data(content) == ((), -1)


def test_a_generation_in_bytes() -> None:
    assert write_generation(7) == b"\x00\x00\x00\x07"
    assert read_generation(b"\x00\x00\x00\x07") == 7
    assert read_generation(None) == -1


def test_a_subscription_of_version_0_has_only_topics() -> None:
    subscription = read_subscription(bytes.fromhex("0000 00000001 000161 ffffffff".replace(" ", "")))
    assert subscription == MemberSubscription(topics=("a",), version=0)


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    assert read_subscription(b"\x00\x09" + SUBSCRIPTION[2:] + b"more").topics == ("a", "b")


def test_nothing_assigned_may_be_no_bytes_at_all() -> None:
    assert read_assignment(b"") == ()


@pytest.mark.parametrize("content", [b"\x00", b"\xff\xff", SUBSCRIPTION[:7]])
def test_bytes_that_make_no_sense_are_refused(content: bytes) -> None:
    with pytest.raises(KafkaError):
        read_subscription(content)
