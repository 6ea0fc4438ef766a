"""A broker whose connection broke while it waited for news: is it dead? If nothing listens at its address any more, it is,
and the controller need not wait for its session to end.

A refused connection comes from the system that the broker ran on: the process is gone, or has closed its listener to stop. No
answer at all says nothing. Fencing a live broker by mistake would cost an election and no record. So one look is enough, and
the election is over before most clients ask who leads now: librdkafka does so 20 ms later, and then only once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId
from odradek.telemetry import events

_log = events.get("broker")
_CONNECT_SECONDS: Final = 1.0


class Suspicion:
    """Used on the event loop of the controller. `fence` takes the registration from an incarnation (id, epoch)."""

    def __init__(
        self,
        address_of: Callable[[BrokerId], tuple[str, int] | None],
        fence: Callable[[BrokerId, int], Awaitable[None]],
    ) -> None:
        self._address_of = address_of
        self._fence = fence
        self._looks: dict[BrokerId, asyncio.Task[None]] = {}

    def connection_lost(self, broker: BrokerId, epoch: int) -> None:
        """Have a look, unless one is under way."""
        if broker not in self._looks:
            task = self._looks[broker] = asyncio.get_running_loop().create_task(self._look(broker, epoch))
            task.add_done_callback(lambda _: self._looks.pop(broker, None))

    async def close(self) -> None:
        looks = list(self._looks.values())
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _look(self, broker: BrokerId, epoch: int) -> None:
        address = self._address_of(broker)
        if address is None or not await _is_refused(*address):
            return
        _log.warning("broker_is_dead", broker=broker, epoch=epoch, reason="its listener refuses connections")
        try:
            await self._fence(broker, epoch)
        except KafkaError as error:  # the session ends all the same
            _log.info("broker_not_fenced", broker=broker, reason=error.message)


async def _is_refused(host: str, port: int) -> bool:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except ConnectionRefusedError:
        return True
    except OSError:  # a timeout is one, too
        return False
    transport.abort()
    return False
