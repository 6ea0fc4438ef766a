"""A broker to whom, or from whom, a connection broke: is it dead? If nothing listens at its address any more, it is.

A refused connection comes from the system that the broker ran on: the process has ended, or has closed its
listener to stop. A timeout proves nothing. So one look is enough, unless it comes while the process is being
taken apart. Two things follow.

The controller takes the broker's registration away, and need not wait for its session to end. Fencing a live broker by mistake
would cost an election and no record.

And until the next image tells who leads instead, this broker names no dead leader to clients. librdkafka asks a few
milliseconds after a death: if the answer names a dead leader, it asks again after a second; if it names none, after a tenth of
that. So an answer waits a moment for the look, and for the election (`undecided_for`). But what is seen here is only hearsay,
and may come from a firewall between brokers that clients do not see: it is forgotten after a while.
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
STAYS_SECONDS: Final = 0.02
_ATTEMPTS: Final = 3
_DOUBT_SECONDS: Final = 5.0
_UNDECIDED_SECONDS: Final = 0.1
_NO_BROKERS: Final[frozenset[BrokerId]] = frozenset()


class FailureDetector:
    """Finds out whether a broker died when a connection to it broke. Used on the event loop. `fence` takes the registration
    from an incarnation (id, epoch), if this broker is the controller.

    `epoch_of` returns the incarnation of a broker in the image; None without one. `looked` is called after
    each look."""

    def __init__(
        self,
        address_of: Callable[[BrokerId], tuple[str, int] | None],
        epoch_of: Callable[[BrokerId], int | None],
        fence: Callable[[BrokerId, int], Awaitable[None]],
        looked: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._address_of = address_of
        self._epoch_of = epoch_of
        self._fence = fence
        self._looked = looked
        self._now = now
        self._looking = 0
        self._undecided_until = 0.0
        self._looks: dict[BrokerId, asyncio.Task[None]] = {}
        self._dead: dict[BrokerId, tuple[int, float]] = {}
        """Epochs of incarnations whose listener refused us, and until when that counts."""

    def connection_lost(self, broker: BrokerId, epoch: int) -> None:
        """Have a look, unless one is under way."""
        if broker not in self._looks:
            self._undecided_until = self._now() + _UNDECIDED_SECONDS
            self._looking += 1
            task = self._looks[broker] = asyncio.get_running_loop().create_task(self._probe(broker, epoch))
            task.add_done_callback(lambda _: self._looks.pop(broker, None))

    def undecided_for(self) -> float:
        """Returns the seconds for which an answer should wait for a probe, or for an image without a dead broker; mostly 0."""
        if not self._dead and not self._looking:
            return 0.0
        left_s = self._undecided_until - self._now()
        return left_s if left_s > 0 and (self._looking or self.dead()) else 0.0

    def dead(self) -> frozenset[BrokerId]:
        """Returns the brokers that the image knows, but which have died since, as far as this broker saw."""
        if not self._dead:
            return _NO_BROKERS
        now = self._now()
        self._dead = {
            broker: (epoch, until)
            for broker, (epoch, until) in self._dead.items()
            if now < until and self._epoch_of(broker) == epoch
        }
        return frozenset(self._dead)

    async def close(self) -> None:
        looks = list(self._looks.values())
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _probe(self, broker: BrokerId, epoch: int) -> None:
        try:
            address = self._address_of(broker)
            if address is None or not await _is_refused(*address):
                return
            self._dead[broker] = (epoch, self._now() + _DOUBT_SECONDS)
        finally:
            self._looking -= 1
            self._looked()
        _log.warning("broker_is_dead", broker=broker, epoch=epoch, reason="its listener refuses connections")
        try:
            await self._fence(broker, epoch)
        except KafkaError as error:  # the session ends anyway
            _log.info("broker_not_fenced", broker=broker, reason=error.message)


async def _is_refused(host: str, port: int) -> bool:
    """A process that is being killed may accept connections for a moment after it lost the first of those that it had: such a
    connection is broken at once, and the next attempt tells more."""
    for _ in range(_ATTEMPTS):
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                transport, probe = await asyncio.get_running_loop().create_connection(_Probe, host, port)
        except ConnectionRefusedError:
            return True
        except OSError:  # a timeout is one, too
            return False
        try:
            async with asyncio.timeout(STAYS_SECONDS):
                await probe.lost.wait()
        except TimeoutError:
            return False
        finally:
            transport.abort()
    return False


class _Probe(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost: Final = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
