"""Server-sent events that end with the server, and not by its cancelling them: a page that is open holds up no Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Final

from starlette.responses import StreamingResponse

_HEADERS: Final = {"x-accel-buffering": "no"}
"""A proxy in front must not collect events."""


def event_stream(events: AsyncGenerator[str, None], ended: asyncio.Event) -> StreamingResponse:
    """Returns a response that sends the events until they end, the browser leaves, or `ended` is set."""
    return StreamingResponse(_until(ended, events), media_type="text/event-stream", headers=_HEADERS)


async def _until(ended: asyncio.Event, events: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    end = asyncio.ensure_future(ended.wait())
    try:
        while not ended.is_set():
            following = asyncio.ensure_future(_following(events))
            stop = partial(_cancel, following)
            end.add_done_callback(stop)
            try:
                text = await following
            except asyncio.CancelledError:
                if ended.is_set():
                    return
                raise
            finally:
                end.remove_done_callback(stop)
            if text is None:
                return
            yield text
    finally:
        end.cancel()
        await events.aclose()


def _cancel(following: asyncio.Future[str | None], _: asyncio.Future[bool]) -> None:
    following.cancel()


async def _following(events: AsyncGenerator[str, None]) -> str | None:
    """Returns the next event; None after the last one."""
    return await anext(events, None)
