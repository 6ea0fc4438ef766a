"""`odradek serve --brokers N`: a cluster on one machine, watched over by this process."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from odradek.cli.output import say
from odradek.cli.serving.broker_processes import BrokerProcess, Fleet
from odradek.cli.serving.broker_settings import registry_of
from odradek.config.listening.listener_addresses import LISTENERS
from odradek.config.listening.listeners import Listener
from odradek.config.loading import load_broker_config
from odradek.config.sources import CollectedConfig
from odradek.model.errors import ConfigError, OdradekError

_LOOK_SECONDS: Final = 0.2
_PAUSE_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 15.0)
"""Pauses before a broker that ended by itself is started again: longer each time it ends soon after."""
_STEADY_SECONDS: Final = 60.0


def serve_many(
    count: int,
    collected: CollectedConfig,
    *,
    join: str | None,
    options: Sequence[str],
) -> int:
    """Serve until SIGTERM or SIGINT; a broker that dies is started again. Exit code 1 when one could not start."""
    config, warnings = load_broker_config(collected.values)
    for warning in (*collected.warnings, *warnings):
        say(f"odradek: {warning}", err=True)
    if len(config.storage.log_dirs) != 1:
        raise ConfigError("--brokers needs one data directory, below which each broker gets its own")
    fleet = Fleet.plan(
        count,
        Path(config.storage.log_dirs[0]),
        first_id=config.server.node_id,
        settings={LISTENERS: str(Listener()), **_settings(collected.values, join)},
        options=options,
        log_files=False,
    )
    stopping = _Stopping()
    try:
        fleet.start()
        say(f"ready {fleet.bootstrap}")
        _watch(fleet, stopping)
    except OdradekError as error:
        if not stopping.asked:
            say(f"odradek: {error}", err=True)
            return 1
    finally:
        fleet.stop()
    return 0


def _settings(values: Mapping[str, str], join: str | None) -> dict[str, str]:
    own = ("log.dirs", "log.dir", "node.id", "broker.id")
    settings = {key: value for key, value in values.items() if key not in own}
    if join is not None:
        settings["odradek.registry.dir"] = registry_of(join)
    if settings.get("zookeeper.connect"):
        # Other machines may run brokers, too: one that holds several must not hold all copies of a partition.
        settings.setdefault("broker.rack", socket.gethostname())
    return settings


class _Stopping:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def _watch(fleet: Fleet, stopping: _Stopping) -> None:
    failures = dict.fromkeys(range(len(fleet.brokers)), 0)
    started = dict.fromkeys(range(len(fleet.brokers)), time.monotonic())
    due: dict[int, float] = {}
    while not stopping.asked:
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        for index, broker in enumerate(fleet.brokers):
            if broker.is_alive:
                continue
            if index not in due:
                steady = now - started[index] > _STEADY_SECONDS
                failures[index] = 0 if steady else failures[index] + 1
                due[index] = now + _PAUSE_SECONDS[min(failures[index], len(_PAUSE_SECONDS) - 1)]
                say(f"odradek: broker {broker.node_id} ended; it is started again", err=True)
            elif now >= due[index]:
                del due[index]
                started[index] = now
                _start_again(broker)


def _start_again(broker: BrokerProcess) -> None:
    broker.start()
    try:
        broker.wait_until_ready()
    except OdradekError as error:
        say(f"odradek: {error}", err=True)
