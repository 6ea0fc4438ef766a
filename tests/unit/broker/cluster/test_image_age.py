"""How old an image may be: the two halves of a bound."""

from __future__ import annotations

from odradek.broker.cluster.image_age import ImageAge


class SetClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


def test_an_image_is_too_old_after_half_of_the_bound_without_an_answer() -> None:
    clock = SetClock()
    age = ImageAge(clock.monotonic, max_s=30.0)
    clock.now_s = 115.0
    assert not age.is_over
    clock.now_s = 115.1
    assert age.is_over


def test_an_answer_counts_from_its_question_on() -> None:
    clock = SetClock()
    age = ImageAge(clock.monotonic, max_s=30.0)
    asked_s = age.now()
    clock.now_s = 112.0
    age.heard(asked_s)
    assert age.age_s == 12.0


def test_an_answer_to_an_older_question_makes_nothing_older() -> None:
    clock = SetClock()
    age = ImageAge(clock.monotonic, max_s=30.0)
    clock.now_s = 110.0
    age.heard(110.0)
    age.heard(104.0)
    assert age.age_s == 0.0
