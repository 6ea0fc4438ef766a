"""The broker as a process: signals, the `ready` line, one sentence for what stops it from starting."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.app import Broker
from odradek.broker.collector import SurvivorFreezer, keep_collections_small
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.lazy import lazy
from odradek.runtime.ports import Runtime
from odradek.runtime.real import real_runtime
from odradek.runtime.real_loop import run_on_loop
from odradek.runtime.real_process import raise_limit
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker.metrics import listener as metrics_listener
    from odradek.broker.metrics import otlp_export
else:
    metrics_listener = lazy("odradek.broker.metrics.listener")
    otlp_export = lazy("odradek.broker.metrics.otlp_export")

_log = events.get("broker")
_SWITCH_SECONDS: Final = 0.005
"""Python's own."""
_BUSY_SWITCH_SECONDS: Final = 0.001


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
        level=log_level,
        json_lines=json_log,
        peer_lines_max=config.server.odradek_log_peer_lines_max,
        node=None if lifeline is None else config.server.node_id,  # brokers of one parent share its log
    )
    raise_limit()
    for warning in warnings:
        _log.warning("setting_ignored", reason=warning)
    try:
        return run_on_loop(_serve(config, lifeline), config.server.odradek_event_loop)
    except ConfigError as error:
        print(f"odradek: {error}", file=sys.stderr)  # noqa: T201 - the one sentence for the person who started it
        return 1


async def _serve(config: BrokerConfig, lifeline: int | None) -> int:
    runtime = real_runtime(threads=config.server.num_io_threads)
    descriptors = runtime.descriptors.for_connections(config.network.max_connections)
    runtime = replace(runtime, descriptors=descriptors)
    broker = Broker(config, runtime)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if lifeline is not None:
        loop.add_reader(lifeline, _cut, lifeline, stopping)
    stopped, failed = loop.create_task(_wait(stopping)), loop.create_task(_wait(broker.fatal))
    try:
        export = otlp_export.OtlpExport(broker, config, runtime) if config.otlp.endpoint else None
        metrics = metrics_listener.MetricsListener(broker, config) if config.metrics.listeners else None
        if metrics is not None:
            metrics.start()
        if export is not None:
            export.start()
    except OdradekError as error:
        print(f"odradek: {error}", file=sys.stderr)  # noqa: T201 - as below
        stopped.cancel()
        failed.cancel()
        return 1
    try:
        return await _run(broker, runtime, stopped, failed)
    finally:
        if runtime.file_syncs is not None:
            runtime.file_syncs.close()
        if metrics is not None:
            metrics.close()
        if export is not None:
            await export.close()


async def _run(
    broker: Broker, runtime: Runtime, stopped: asyncio.Task[None], failed: asyncio.Task[None]
) -> int:
    loop = asyncio.get_running_loop()
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
    aside = SurvivorFreezer(
        now=runtime.clock.monotonic,
        partition_count=lambda: len(broker.context.replicas.partitions),
        later=loop.call_soon_threadsafe,
    )
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
    """Returns the first of the futures to finish, in the order given."""
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
