"""Faults that belong together: each play is a short story in which a cluster of this kind is known to lose records.

A play begins at a moment and is a list of strikes; who has a role is found out when each falls. A profile says which plays a
seed draws from, and `cluster_plan` sets the brokers up accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from odradek.testing.sim.entropy import stream

Line = tuple[str, str, float, float]
"""Kind, role, at which second of the run, for how long."""
Play = Callable[[Random, float], list[Line]]
_PROFILES: Final = ("mix", "mix", "storms", "in_sync", "in_sync", "moves", "terms", "rot")
PROFILES: Final = tuple(dict.fromkeys(_PROFILES))
"""`mix` knows no plays: single faults of every kind around a theme."""


def profile_of(seed: int) -> str:
    return stream(seed, "profile").choice(_PROFILES)


def _last_stand(rng: Random, at_s: float) -> list[Line]:
    """The leader is left alone in sync, and dies while all others are behind."""
    alone_s, down_s = rng.uniform(0.9, 2.2), rng.uniform(1.0, 4.0)
    dies = rng.choice(("kill", "kill", "power"))
    return [("alone", "leader", at_s, alone_s), (dies, "last", at_s + alone_s - 0.1, down_s)]


def _laggard(rng: Random, at_s: float) -> list[Line]:
    """All die at once while one is behind, and what the others committed is not yet in their checkpoints."""
    lag_s = rng.uniform(0.7, 1.6)
    dies = rng.choice(("kill", "power"))
    return [
        ("alone", "follower", at_s, lag_s),
        (dies, "all", at_s + lag_s - rng.uniform(0, 0.2), rng.uniform(0.1, 0.9)),
    ]


def _usurper(rng: Random, at_s: float) -> list[Line]:
    """The elected leader is cut off at that moment, takes writes that no one fetches, and is deposed."""
    return [
        ("alone", "heir", at_s, rng.uniform(0.8, 2.0)),
        ("kill", "leader", at_s + rng.uniform(0.02, 0.2), rng.uniform(0.3, 1.5)),
        ("expire", "leader", at_s + rng.uniform(0.4, 0.9), 0.0),
    ]


def _there_and_back(rng: Random, at_s: float) -> list[Line]:
    """A leader is deposed with a tail of its own, and elected again soon after."""
    return [
        ("alone", "leader", at_s, rng.uniform(0.2, 0.6)),
        ("expire", "leader", at_s + rng.uniform(0.05, 0.2), 0.0),
        ("kill", "leader", at_s + rng.uniform(0.8, 1.5), rng.uniform(0.2, 2.0)),
    ]


def _relay(rng: Random, at_s: float) -> list[Line]:
    """One leader after the other dies."""
    lines: list[Line] = []
    for _ in range(rng.choice((2, 3))):
        lines.append((rng.choice(("kill", "power")), "leader", at_s, rng.uniform(0.1, 1.5)))
        at_s += rng.uniform(0.1, 0.6)
    return lines


def _back_at_once(rng: Random, at_s: float) -> list[Line]:
    """A leader loses its power and is back before anyone has missed it."""
    return [("power", "leader", at_s, rng.uniform(0.01, 0.1))]


def _slow_follower(rng: Random, at_s: float) -> list[Line]:
    """It falls out of the ISR and comes back."""
    kind = rng.choice(("slowdisk", "pause", "pause", "deaf", "alone"))
    return [(kind, "follower", at_s, rng.uniform(0.5, 1.8))]


def _zombie(rng: Random, at_s: float) -> list[Line]:
    """The leader is deposed; its clients still reach it."""
    return [("exile", "leader", at_s, rng.uniform(1.0, 4.0))]


def _blackout(rng: Random, at_s: float) -> list[Line]:
    return [("power", "all", at_s, rng.uniform(0.1, 1.0))]


def _slow_leader(rng: Random, at_s: float) -> list[Line]:
    """Its followers have on disk what it has not, when the power fails everywhere; it is back, and leads, before they are."""
    slow_s = rng.uniform(0.4, 1.2)
    return [
        ("slowdisk", "leader", at_s, slow_s),
        ("power", "all", at_s + slow_s - 0.05, rng.uniform(0.3, 1.0)),
    ]


def _cut_at_a_sync(rng: Random, at_s: float) -> list[Line]:
    return [("power/sync", rng.choice(("leader", "follower", "last")), at_s, rng.uniform(0.05, 1.0))]


def _deposed_controller(rng: Random, at_s: float) -> list[Line]:
    """It goes on deciding while a leader dies, and so does its successor."""
    kind = rng.choice(("pause", "cut", "isolate", "expire"))
    return [
        ("kill", rng.choice(("leader", "follower")), at_s - rng.uniform(-0.1, 0.2), rng.uniform(0.1, 2.0)),
        (kind, "controller", at_s, rng.uniform(1.0, 4.0)),
    ]


def _busy_controller(rng: Random, at_s: float) -> list[Line]:
    """Controllers die in the middle of what they do."""
    return [
        ("pause", "follower", at_s, rng.uniform(0.5, 1.0)),
        ("kill", "controller", at_s + rng.uniform(0.0, 0.8), rng.uniform(0.1, 1.5)),
    ]


def _slow_word(rng: Random, at_s: float) -> list[Line]:
    """Requests and answers are late while leaders change."""
    return [
        ("slownet", "all", at_s, rng.uniform(1.0, 2.5)),
        (rng.choice(("restart", "expire")), "leader", at_s + rng.uniform(0.1, 1.0), rng.uniform(0.1, 1.0)),
        ("pause", "follower", at_s + rng.uniform(0.0, 0.8), rng.uniform(0.5, 1.0)),
    ]


def _handover(rng: Random, at_s: float) -> list[Line]:
    """A leader that lives hands over while what it says of the ISR is still under way."""
    return [
        ("slownet", "all", at_s, rng.uniform(1.2, 2.0)),
        (rng.choice(("pause", "deaf")), "follower", at_s, rng.uniform(0.5, 0.9)),
        ("restart", "leader", at_s + rng.uniform(0.4, 1.0), rng.uniform(0.0, 0.3)),
    ]


def _newcomer(rng: Random, at_s: float) -> list[Line]:
    """Who copies a partition falls behind, or dies."""
    kind = rng.choice(("kill", "power", "pause", "slowdisk", "alone"))
    return [(kind, rng.choice(("follower", "leader", "any")), at_s, rng.uniform(0.1, 1.5))]


def _rot(rng: Random, at_s: float) -> list[Line]:
    """A bit flips while the broker is down: it must not be in sync with what it lost."""
    return [("rot", rng.choice(("leader", "follower", "any")), at_s, rng.uniform(0.05, 0.6))]


def _lost_disk(rng: Random, at_s: float) -> list[Line]:
    """A broker comes back without its disk, without a part of it, or with an older one: others have what it lacks."""
    kind = rng.choice(("wipe", "restore"))
    return [(kind, rng.choice(("leader", "follower", "any")), at_s, rng.uniform(0.05, 0.8))]


def _none_left(rng: Random, at_s: float) -> list[Line]:
    """One broker loses what was in its memory while no other one is there, and is back first."""
    dies_s = at_s + rng.uniform(0.0, 0.1)
    return [
        ("power", rng.choice(("leader", "follower", "any")), dies_s, rng.uniform(0.02, 0.3)),
        ("kill", "all", dies_s + rng.choice((0.0, 0.02)), rng.uniform(0.5, 1.5)),
    ]


def _none_left_and_killed(rng: Random, at_s: float) -> list[Line]:
    """The same, and the process that is back is killed before anyone has heard of what it lacks."""
    power, kill = _none_left(rng, at_s)
    back_s = power[2] + power[3]
    return [power, kill, ("kill", "fresh", back_s + rng.uniform(0.05, 0.4), rng.uniform(0.02, 0.2))]


def _memory_gone(rng: Random, at_s: float) -> list[Line]:
    """Brokers die one after another, and one of them forgets."""
    roles = ("leader", "follower", "last", "any", "controller")
    lines = [
        ("kill", rng.choice(roles), at_s + rng.uniform(0.0, 0.6), rng.uniform(0.1, 2.0)) for _ in range(2)
    ]
    kind = rng.choice(("power", "power/sync", "power/write"))
    return [*lines, (kind, rng.choice(roles), at_s + rng.uniform(0.0, 0.8), rng.uniform(0.02, 0.6))]


def _succession(rng: Random, at_s: float) -> list[Line]:
    """The coordinator of a group dies, and then the one that took over, sometimes before the first is back."""
    lines: list[Line] = []
    for _ in range(rng.choice((2, 2, 3))):
        lines.append((rng.choice(("kill", "kill", "power")), "group", at_s, rng.uniform(0.3, 3.0)))
        at_s += rng.uniform(0.3, 3.0)
    return lines


def _coordinator_cut_short(rng: Random, at_s: float) -> list[Line]:
    """The coordinator dies in the middle of what it writes, and its successor soon after."""
    point = rng.choice(("kill/write", "power/write", "power/sync"))
    return [
        (point, "group", at_s, rng.uniform(0.5, 3.0)),
        ("kill", "group", at_s + rng.uniform(1.0, 3.5), rng.uniform(0.3, 2.0)),
    ]


def _coordinator_there_and_back(rng: Random, at_s: float) -> list[Line]:
    """The coordinator is deposed, a successor changes the group and dies, and the first coordinates again."""
    return [
        ("expire", "group", at_s, 0.0),
        ("kill", "group", at_s + rng.uniform(1.0, 3.0), rng.uniform(0.5, 3.0)),
    ]


def _coordinator_unaware(rng: Random, at_s: float) -> list[Line]:
    """The coordinator is cut off from its followers, deposed, and still reached by members."""
    return [
        ("alone", "group", at_s, rng.uniform(0.8, 2.0)),
        (rng.choice(("exile", "kill")), "group", at_s + rng.uniform(0.1, 0.7), rng.uniform(1.0, 3.0)),
    ]


_PLAYS: Final[dict[str, Sequence[Play]]] = {
    "storms": (
        _laggard,
        _slow_leader,
        _slow_leader,
        _last_stand,
        _blackout,
        _back_at_once,
        _cut_at_a_sync,
        _relay,
    ),
    "in_sync": (
        _slow_follower,
        _slow_follower,
        _usurper,
        _there_and_back,
        _last_stand,
        _zombie,
        _slow_word,
        _handover,
    ),
    "moves": (_newcomer, _newcomer, _slow_follower, _relay, _busy_controller, _slow_word),
    "rot": (_rot, _rot, _lost_disk, _lost_disk, _slow_follower, _zombie),
    "page_cache": (
        _none_left,
        _none_left_and_killed,
        _none_left_and_killed,
        _memory_gone,
        _memory_gone,
        _slow_follower,
        _relay,
        _last_stand,
    ),
    "coordinators": (
        _succession,
        _succession,
        _coordinator_cut_short,
        _coordinator_there_and_back,
        _coordinator_unaware,
    ),
    "terms": (_deposed_controller, _deposed_controller, _busy_controller, _zombie, _back_at_once, _relay),
}


def draw_plays(seed: int, profile: str) -> list[Line]:
    """The lines of a run, in order of time."""
    rng = stream(seed, f"plays {profile}")
    end_s = rng.uniform(3.0, 7.0)
    lines: list[Line] = []
    at_s = rng.uniform(0.3, 1.0)
    while at_s < end_s:
        play = rng.choice(_PLAYS[profile])(rng, at_s)
        lines += play
        at_s = max(line[2] + min(line[3], 1.0) for line in play) + rng.uniform(0.1, 0.8)
    return sorted(lines, key=lambda line: line[2])
