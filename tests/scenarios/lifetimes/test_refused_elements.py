"""A request with many elements leaves no cycle behind, however many of them are refused.

An error that is kept with its traceback is one: the traceback has the frame that has the list of errors, or the future. A
million elements make a million of them, and the collector looks at what is old seldom (`broker/process.py`).
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import pytest
from tests.hostile.values import ArrayPlace, Blowing, Known, array_places
from tests.kit.heap import put_aside
from tests.kit.wire import Wire
from tests.scenarios.lifetimes.lives import SMALL
from tests.scenarios.one_broker import Scene

from odradek.model.ids import ZERO_UUID
from odradek.protocol.api import APIS, Api

_COUNT: Final = 20
_ANSWER_SECONDS: Final = 3.0
_FEW: Final = 5
"""Of one type, less than one for each fourth element: what a connection and its client leave."""


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """What only a collection would free, after `gc.collect()`."""
    gc.collect()
    gc.disable()
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        put_aside()
        gc.enable()


async def test_refused_elements_leave_no_cycles(scene: Scene, garbage: list[Any]) -> None:
    await scene.start(**SMALL)
    wire = await scene.connect()
    await wire.find_coordinator()
    # Neither the topic nor its id is there: nearly all elements are refused.
    blowing = Blowing(Known(topic_id=ZERO_UUID, topics=("absent",)))
    left: dict[str, Counter[str]] = {}
    tried = 0
    for api in APIS.values():
        for place in array_places(api.request, api.versions.max):
            for are_equal in (True, False):
                tried += 1
                cycles = await _cycles(scene, blowing, api, place, are_equal, garbage)
                if cycles:
                    left[f"{api.name} {place} {'equal' if are_equal else 'different'}"] = cycles
    assert tried > 200
    assert not left


async def _cycles(
    scene: Scene, blowing: Blowing, api: Api, place: ArrayPlace, are_equal: bool, garbage: list[Any]
) -> Counter[str]:
    """Returns how many objects of each type one request leaves; frames are counted by their functions."""
    version = api.versions.max
    request = blowing.request(api.request, version, place, count=_COUNT, are_equal=are_equal)
    gc.collect()
    gc.freeze()
    wire = await scene.connect()
    await _answered(wire, request, version)
    await wire.close()
    scene.forget(wire)
    del wire
    await asyncio.sleep(0.01)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    counts = Counter(_name(thing) for thing in garbage)
    garbage.clear()
    return Counter({name: count for name, count in counts.items() if count > _FEW})


async def _answered(wire: Wire, request: Any, version: int) -> None:
    """Or refused by closing the connection, or not at all: members wait for others."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await wire.ask(request, version)
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        pass


def _name(thing: Any) -> str:
    if isinstance(thing, FrameType):
        return f"frame of {thing.f_code.co_qualname}"
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
