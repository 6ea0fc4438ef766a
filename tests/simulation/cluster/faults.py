"""What strikes a simulated cluster, whom and when, as a line of text that a command can repeat.

`kill:leader@1.25+0.5,power/sync:last@2+1,cut:controller-registry@3+2` reads: at second 1.25 the process that leads some
partition is killed, and started again half a second later; at second 2 the last broker in sync of some partition is armed to
lose its power at its next sync; at second 3 the controller and the registry lose sight of each other for two seconds. Who has
a role is found out at that moment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.simulation.cluster.plays import draw_plays, profile_of

from odradek.testing.sim.entropy import stream

ROLES: Final = ("leader", "heir", "follower", "last", "controller", "group", "txn", "fresh", "any")
"""`heir`: who leads next when the leader dies. `last`: the one that is alone in sync, or a leader where none is. `fresh`: who
came up last."""
_CRASHES: Final = frozenset(
    f"{kind}{where}" for kind in ("kill", "power") for where in ("", "/write", "/sync", "/create", "/rename")
)
KINDS: Final = _CRASHES | {
    "restart",
    "roll",
    "pause",
    "isolate",
    "exile",
    "alone",
    "deaf",
    "mute",
    "cut",
    "unheard",
    "split",
    "expire",
    "stale",
    "slowdisk",
    "slownet",
    "clock",
    "reset",
    "eio",
    "enospc",
    "rot",
    "wipe",
    "restore",
}
LOSSES: Final = frozenset({"rot", "wipe", "restore"})
"""One broker of a run may lose something that was on its disk."""
"""What each does is said where it is done: `Nemesis`."""
_FORM: Final = re.compile(r"([a-z/]+)(?::([a-z]+))?@(\d+(?:\.\d+)?)(?:\+(\d+(?:\.\d+)?))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault. `for_s` is how long it lasts, or how long the broker stays down."""

    kind: str
    role: str
    at_s: float
    for_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.role}@{self.at_s:g}" + (f"+{self.for_s:g}" if self.for_s else "")


@dataclass(frozen=True, slots=True)
class ClusterFaults:
    """The faults of a run, in order of time."""

    strikes: tuple[Strike, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.strikes)) or "none"

    @property
    def end_s(self) -> float:
        return max((strike.at_s + strike.for_s for strike in self.strikes), default=0.0)

    @classmethod
    def parse(cls, text: str) -> ClusterFaults:
        """Raises ValueError for what is not such a line."""
        return cls() if text == "none" else cls(tuple(_parse(part) for part in text.split(",")))

    @classmethod
    def draw(cls, seed: int) -> ClusterFaults:
        """Plays, where the seed's profile has some; else one family of faults that comes again and again, among others."""
        profile = profile_of(seed)
        if profile != "mix":
            return cls(_strikes_of(profile, seed))
        rng = stream(seed, "cluster faults")
        theme = rng.choice(_THEMES)
        end_s = rng.uniform(2.0, 7.0)
        pace_s = rng.choice((0.4, 0.8, 1.5))
        strikes = []
        at_s = rng.uniform(0.0, pace_s)
        while at_s < end_s:
            family = theme if rng.random() < 0.7 else rng.choice(_THEMES)
            strikes.append(_strike(rng, rng.choice(family), at_s))
            at_s += rng.expovariate(1 / pace_s)
        return cls(tuple(strikes))

    def without(self, index: int) -> ClusterFaults:
        return type(self)(self.strikes[:index] + self.strikes[index + 1 :])


class PageCacheFaults(ClusterFaults):
    """Those of a run in which what is acknowledged need not be on disk."""

    __slots__ = ()

    @classmethod
    def draw(cls, seed: int) -> PageCacheFaults:
        return cls(_strikes_of("page_cache", seed))


class CoordinatorFaults(ClusterFaults):
    """Those that chase the coordinator of a group from broker to broker."""

    __slots__ = ()

    @classmethod
    def draw(cls, seed: int) -> CoordinatorFaults:
        return cls(_strikes_of("coordinators", seed))


def _strikes_of(profile: str, seed: int) -> tuple[Strike, ...]:
    return tuple(
        Strike(kind=kind, role=role, at_s=round(at_s, 2), for_s=round(for_s, 2))
        for kind, role, at_s, for_s in draw_plays(seed, profile)
    )


def _parse(text: str) -> Strike:
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in KINDS or (match[2] or "any") not in (*ROLES, "all"):
        raise ValueError(f"{text!r} is no fault: a fault reads like kill:leader@1.5+0.5 or power/sync:any@2")
    return Strike(kind=match[1], role=match[2] or "any", at_s=float(match[3]), for_s=float(match[4] or 0))


_DEATHS: Final = (
    *(("kill", role) for role in ("leader", "leader", "last", "controller", "group", "txn", "fresh", "any")),
    *(
        ("power", role)
        for role in ("leader", "leader", "last", "follower", "controller", "group", "txn", "fresh")
    ),
)
_POINTS: Final = tuple(
    (kind, role)
    for kind in sorted(_CRASHES)
    if "/" in kind
    for role in ("leader", "follower", "last", "controller", "txn")
)
_BLACKOUTS: Final = (
    ("power", "all"),
    ("power", "all"),
    ("power", "last"),
    ("kill", "all"),
    ("power", "leader"),
)
_ZOMBIES: Final = tuple(
    (kind, role)
    for kind in ("pause", "pause", "cut", "expire", "isolate", "exile", "exile")
    for role in ("leader", "controller", "last", "group", "txn", "follower")
)
_LINKS: Final = tuple(
    (kind, role)
    for kind in ("alone", "deaf", "mute", "split", "split", "isolate", "reset", "unheard")
    for role in ("leader", "leader", "follower", "controller", "last", "any")
)
_RESTARTS: Final = (
    *(("restart", role) for role in ("leader", "controller", "follower", "group", "txn", "fresh")),
    ("roll", "all"),
)
_SLOW: Final = (
    ("slowdisk", "leader"),
    ("slowdisk", "follower"),
    ("slownet", "all"),
    ("stale", "all"),
    ("clock", "any"),
    ("clock", "controller"),
    ("pause", "follower"),
)
_DISKS: Final = tuple(
    (kind, role) for kind in ("eio", "enospc", "rot") for role in ("leader", "follower", "last", "any")
)
_THEMES: Final = (
    _DEATHS,
    _DEATHS,
    _POINTS,
    _BLACKOUTS,
    _BLACKOUTS,
    _ZOMBIES,
    _ZOMBIES,
    _LINKS,
    _RESTARTS,
    _SLOW,
    _DISKS,
)


def _strike(rng: Random, what: tuple[str, str], at_s: float) -> Strike:
    kind, role = what
    short, long = rng.uniform(0.05, 1.0), rng.uniform(0.5, 5.0)
    lasts_s = (
        rng.choice((short, long))
        if kind in _CRASHES or kind == "restart"
        else rng.choice((short, long, long))
    )
    if role == "all" and kind in _CRASHES:
        lasts_s = short
    return Strike(kind=kind, role=role, at_s=round(at_s, 2), for_s=round(lasts_s, 2))
