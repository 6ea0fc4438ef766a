"""Deadlines for the answers to requests that wait for other brokers, for the registry, or for many disks one after another.

Each of their steps has a bound of its own. Together they may outlast what clients wait (30 s with most of
them), and a client that gets no response closes its connection. So they are answered with REQUEST_TIMED_OUT
before that. Work continues where half of it would be worse than all of it: changes of the cluster run to
their end (`cluster/controller/changes.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from odradek.broker.requests import refused_answers
from odradek.model.errors import ErrorCode
from odradek.protocol import Api, Message

T = TypeVar("T")

ANSWER_SECONDS: Final = 26.0
_GRACE_SECONDS: Final = 5.0
"""Beyond a request's own timeout, in which its handler answers better than this can."""


def seconds_for(request: object) -> float:
    """Returns the time that the request may wait: `ANSWER_SECONDS`, or a little more than its own timeout."""
    own_ms: int = getattr(request, "timeout_ms", 0)
    return max(ANSWER_SECONDS, own_ms / 1000 + _GRACE_SECONDS)


async def in_time(
    work: Awaitable[T], api: Api, version: int, request: Message, refuse: Callable[[Message], Awaitable[T]]
) -> T:
    """Returns the result of the work, or what `refuse` returns for REQUEST_TIMED_OUT when the work takes too
    long."""
    seconds = seconds_for(request)
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
    message = f"{api.name} was not done within {seconds:g} s; it may be done later"
    return await refuse(
        refused_answers.whole_answer(api, version, request, ErrorCode.REQUEST_TIMED_OUT, message)
    )
