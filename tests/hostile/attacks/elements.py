"""Arrays with as many elements as a frame can carry: for every API, version and place of an array, equal and different ones.

The frames come from the message schemas. The newest version of each API goes first, in small frames and in large ones; a
run that has too little time says how many it tried.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from tests.hostile.attack import Attack, Stage, known_to
from tests.hostile.figures import MEBIBYTE
from tests.hostile.values import ArrayPlace, Blowing, array_places
from tests.kit.wire import request_frame

from odradek.protocol import api_by_name
from odradek.protocol.api import APIS, Api
from odradek.protocol.messages.metadata.metadata import MetadataRequest

_ANSWER_SECONDS: Final = 30.0
_PATIENCE: Final = frozenset({"JoinGroup", "SyncGroup"})
"""They wait for other members, as they should."""
_WORST_COUNT: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    api: Api
    version: int
    place: ArrayPlace
    budget_bytes: int
    are_equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """The outcome of one frame."""

    api: str
    version: int
    array: str
    elements: str
    count: int
    frame_bytes: int
    outcome: str
    seconds: float
    bystander_ms: float
    """The longest that the bystander waited meanwhile."""


def cases(scale_is_full: bool) -> Iterator[Case]:
    """The most telling ones first."""
    newest = [(api, api.versions.max) for api in APIS.values()]
    older = [
        (api, version) for api in APIS.values() for version in api.versions if version < api.versions.max
    ]
    small, large = 100_000, 3_000_000
    rounds = [(newest, small), (newest, large), (older, small)] if scale_is_full else [(newest, 20_000)]
    for versions, budget_bytes in rounds:
        for api, version in versions:
            for place in array_places(api.request, version):
                for are_equal in (True, False):
                    yield Case(
                        api=api, version=version, place=place, budget_bytes=budget_bytes, are_equal=are_equal
                    )


def _attack(stage: Stage) -> None:
    blowing = Blowing(known_to(stage.connect()))
    planned = list(cases(stage.scale.is_full))
    deadline = time.monotonic() + stage.scale.seconds
    came: list[Came] = []
    for case in planned:
        if time.monotonic() > deadline or not stage.victim.is_alive:
            break
        came.append(_try(stage, blowing, case))
    longest = sorted(came, key=lambda trial: -trial.seconds)[:_WORST_COUNT]
    worst = longest + [
        trial for trial in sorted(came, key=lambda trial: -trial.bystander_ms)[:3] if trial not in longest
    ]
    stage.notes["frames_tried"] = f"{len(came)} of {len(planned)}"
    stage.notes["worst_frames"] = [asdict(trial) for trial in worst]
    stage.notes["closed"] = sorted({trial.api for trial in came if trial.outcome == "closed"})
    silent = [trial for trial in came if trial.outcome == "no answer" and trial.api not in _PATIENCE]
    stage.must(
        not silent,
        f"{len(silent)} frames have no answer after {_ANSWER_SECONDS:.0f} s: "
        + ", ".join(f"{trial.api} v{trial.version} {trial.count} x {trial.array}" for trial in silent[:5]),
    )
    stage.must(bool(came), "no frame was tried")


def _try(stage: Stage, blowing: Blowing, case: Case) -> Came:
    count = blowing.element_count(
        case.api.request, case.version, case.place, case.budget_bytes, are_equal=case.are_equal
    )
    message = blowing.request(
        case.api.request, case.version, case.place, count=count, are_equal=case.are_equal
    )
    frame = request_frame(message, case.version)
    del message
    api_timeout_s = 2.0 if case.api.name in _PATIENCE else _ANSWER_SECONDS
    began = time.monotonic()
    peer = stage.connect(timeout_s=api_timeout_s)
    try:
        peer.send(frame)
        peer.receive()
        outcome = "answered"
    except TimeoutError:
        outcome = "no answer"
    except OSError:
        outcome = "closed"
    finally:
        peer.abandon()
    ended = time.monotonic()
    with stage.connect() as probe:  # the loop is free again, and the bystander's wait is over
        probe.ask(_probe())
    free = time.monotonic()
    time.sleep(0.02)
    return Came(
        api=case.api.name,
        version=case.version,
        array=str(case.place),
        elements="equal" if case.are_equal else "different",
        count=count,
        frame_bytes=len(frame),
        outcome=outcome,
        seconds=round(ended - began, 3),
        bystander_ms=round(stage.worst_bystander_ms(began, free), 1),
    )


def _probe() -> MetadataRequest:
    probe: MetadataRequest = api_by_name("Metadata").request(topics=[])
    return probe


ATTACKS: Final = (
    Attack(
        name="arrays",
        brokers_in_short=(1,),
        claim="an array of any API, as long as a frame can carry, holds up no one and costs little",
        run=_attack,
        brokers=(1, 3),
        grown_bytes_max=512 * MEBIBYTE,
        kept_bytes_max=64 * MEBIBYTE,
        log_bytes_max=2 * MEBIBYTE,
    ),
)
