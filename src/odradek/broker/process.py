"""The broker as a process: signals, the `ready` line, one sentence for what stops it from starting."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.broker.app import Broker
from odradek.config.broker import BrokerConfig
from odradek.model.errors import OdradekError
from odradek.runtime.real import real_runtime
from odradek.runtime.real_process import raise_limit
from odradek.telemetry import events

_log = events.get("broker")
_WHOLE_COLLECTIONS_AFTER: Final = 10
"""Python's own."""
_WHOLE_COLLECTIONS_NEVER: Final = 1 << 30
_OLDEST_GENERATION: Final = 2
_SWITCH_SECONDS: Final = 0.005
"""Python's own."""
_BUSY_SWITCH_SECONDS: Final = 0.001
_LOOK_AGAIN: Final = 1.25
"""So many times the blocks of the last look at everything."""


def run(
    config: BrokerConfig,
    warnings: Sequence[str] = (),
    *,
    json_log: bool = False,
    log_level: str = "INFO",
    lifeline: int | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. 0 after a clean stop, 1 when the broker could not start or go on.

    `lifeline` is a file descriptor whose other end our parent holds: when it closes, we stop.
    Prints `ready HOST:PORT` on standard output once it accepts connections; everything else goes to standard error.
    """
    events.configure(
        level=log_level, json_lines=json_log, peer_lines_max=config.server.odradek_log_peer_lines_max
    )
    raise_limit()
    for warning in warnings:
        _log.warning("setting_ignored", reason=warning)
    return asyncio.run(_serve(config, lifeline))


async def _serve(config: BrokerConfig, lifeline: int | None) -> int:
    broker = Broker(config, real_runtime(threads=config.server.num_io_threads))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if lifeline is not None:
        loop.add_reader(lifeline, _cut, lifeline, stopping)
    stopped, failed = loop.create_task(_wait(stopping)), loop.create_task(_wait(broker.fatal))
    starting = loop.create_task(broker.start())
    try:
        if await _first([starting, stopped]) is stopped:
            failed.cancel()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return 0
        starting.result()
    except OdradekError as error:
        print(f"odradek: {error}", file=sys.stderr)  # noqa: T201 - the one sentence for the person who started it
        stopped.cancel()
        failed.cancel()
        return 1
    aside = SurvivorFreezer()
    try:
        print(f"ready {broker.address}", flush=True)  # noqa: T201 - the contract with the parent process
        # What was imported and built so far lives as long as the process: keep the collector away from it.
        gc.freeze()
        gc.callbacks.append(aside)
        gc.enable()
        broker.watch_loop()
        broker.turns.on_busy = partial(pace_memory, broker)
        first = await _first([stopped, failed])
    finally:
        if aside in gc.callbacks:
            gc.callbacks.remove(aside)
        stopped.cancel()
        failed.cancel()
        await broker.stop()
    return 1 if first is failed else 0


def _cut(lifeline: int, stopping: asyncio.Event) -> None:
    asyncio.get_running_loop().remove_reader(lifeline)
    stopping.set()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _first(waiters: Sequence[asyncio.Task[None]]) -> asyncio.Future[None]:
    """The first of the futures to finish, in the order given."""
    done: asyncio.Future[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def settle(waiter: asyncio.Future[None]) -> None:
        if not done.done():
            done.set_result(waiter)

    for waiter in waiters:
        waiter.add_done_callback(settle)
    return await done


def pace_memory(broker: Broker, is_busy: bool) -> None:
    """Long requests make many objects: the collector looks at few of them meanwhile, and their memory goes back after them.

    Threads that write and sync wait for the loop's thread less long meanwhile: each of their steps waits for Python's lock.
    """
    keep_collections_small(is_busy)
    sys.setswitchinterval(_BUSY_SWITCH_SECONDS if is_busy else _SWITCH_SECONDS)
    if not is_busy:
        broker.background.return_free_memory()


def keep_collections_small(is_busy: bool) -> None:
    """While large requests are served, the collector looks at young objects only.

    A look at all takes 50 ms for each 100,000 objects, and what is read from a frame, or will be written to one, has no cycles.
    """
    young, middle, old = gc.get_threshold()
    if is_busy:
        gc.set_threshold(young, middle, _WHOLE_COLLECTIONS_NEVER)
    elif old == _WHOLE_COLLECTIONS_NEVER:
        gc.set_threshold(young, middle, _WHOLE_COLLECTIONS_AFTER)


class SurvivorFreezer:
    """A callback of the collector: what survives a full collection is put aside (`gc.freeze`), so the next one looks at what is
    newer.

    A look at everything takes 50 ms for each 100,000 objects, and a broker of 10,000 partitions has 700,000. What is put aside
    is freed when nothing refers to it, as before; only a cycle that becomes garbage stays. What comes and goes has none
    (`tests/scenarios/lifetimes`). Everything is looked at again, all the same, when there is a quarter more than the last time.
    """

    def __init__(self, blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        self._blocks = blocks
        self._known_blocks = blocks()
        self._is_whole = False

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] != _OLDEST_GENERATION:
            return
        blocks = self._blocks()
        if self._is_whole:
            self._known_blocks = blocks
            self._is_whole = False
        elif blocks > _LOOK_AGAIN * self._known_blocks:
            gc.unfreeze()
            self._is_whole = True
            return
        self._known_blocks = min(self._known_blocks, blocks)
        gc.freeze()
