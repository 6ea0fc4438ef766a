"""Who is silent for too long, as each observer judges by what he has seen himself."""

from __future__ import annotations

from odradek.registry.session_files import SessionMonitor


def beat(number: int, timeout_s: float = 2.0) -> bytes:
    return b"%016x %016x" % (number, int(timeout_s * 1000))


def test_a_process_that_is_gone_is_over_at_once() -> None:
    assert SessionMonitor().expired_sessions({1: None, 2: beat(0)}, 10.0) == [1]


def test_silence_counts_from_the_first_look_and_ends_with_a_beat() -> None:
    silence = SessionMonitor()
    looks = [(round(0.2 * number, 1), beat(number // 8)) for number in range(40)]
    assert all(silence.expired_sessions({1: content}, at) == [] for at, content in looks)
    later = [silence.expired_sessions({1: beat(4)}, 8 + 0.2 * number) for number in range(12)]
    assert later[0] == []
    assert later[-1] == [1]


def test_what_an_observer_slept_through_does_not_count() -> None:
    silence = SessionMonitor()
    assert silence.expired_sessions({1: beat(0)}, 0.0) == []
    assert silence.expired_sessions({1: beat(0)}, 1000.0) == []
    assert silence.expired_sessions({1: beat(0)}, 2000.0) == []


def test_each_session_has_its_own_timeout_and_a_file_without_one_has_none() -> None:
    silence = SessionMonitor()
    heartbeats: dict[int, bytes | None] = {1: beat(0, 1.0), 2: beat(0, 60.0), 3: b""}
    over = [silence.expired_sessions(heartbeats, 0.25 * number) for number in range(12)]
    assert over[-1] == [1]


def test_a_beat_between_the_look_and_the_lock_keeps_the_session() -> None:
    silence = SessionMonitor()
    for number in range(12):
        over = silence.expired_sessions({1: beat(0)}, 0.25 * number)
    assert over == [1]
    assert silence.is_over(1, beat(0))
    assert not silence.is_over(1, beat(1))
