"""What is looked at every few seconds, as one line of JSON each: a run that is cut off has its lines all the same."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.hostile.attack import log_of
from tests.hostile.figures import Figures, loop_hold_count, process_time_s
from tests.hostile.latencies import Bystander, Latencies
from tests.kit.wire import BlockingWire, parse_address

from odradek.cli.serving.broker_processes import BrokerProcess, Fleet
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest

_LAG_PROBES: Final = 5


class Sampler:
    """Looks at the brokers that stay. `lag_ms` is how long the smallest request waits for the event loop, at most of a few."""

    def __init__(self, fleet: Fleet, bystander: Bystander, file: Path) -> None:
        self._brokers = fleet.brokers[:-1]
        self._bystander = bystander
        self._file = file
        self._began = self._looked = time.monotonic()
        self._log_positions = {broker.node_id: 0 for broker in self._brokers}
        self._holds = dict.fromkeys(self._log_positions, 0)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")

    def look(self) -> None:
        """Writes one line."""
        now = time.monotonic()
        latencies = Latencies.of(self._bystander.answers_since(self._looked))
        line: dict[str, Any] = {
            "seconds": round(now - self._began, 1),
            "bystander": {
                "count": latencies.count,
                "p50_ms": round(latencies.p50_ms, 2),
                "p99_ms": round(latencies.p99_ms, 2),
                "max_ms": round(latencies.max_ms, 2),
            },
            "brokers": {str(broker.node_id): self._look_at(broker) for broker in self._brokers},
        }
        self._looked = now
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _look_at(self, broker: BrokerProcess) -> dict[str, float] | None:
        """None of a broker that has ended."""
        if broker.pid is None:
            return None
        host, port = parse_address(broker.address)
        log_file = log_of(broker)
        figures = Figures.read(broker.pid, port, log_file)
        self._holds[broker.node_id] += loop_hold_count(log_file, self._log_positions[broker.node_id])
        self._log_positions[broker.node_id] = figures.log_bytes
        return {
            **{
                name: value for name, value in asdict(figures).items() if name != "held_bytes"
            },  # not asked here
            "data_bytes": _weight(broker.terms.directory),
            "loop_holds": self._holds[broker.node_id],
            "cpu_s": round(process_time_s(broker.pid), 2),
            "lag_ms": round(_lag_ms((host, port)), 2),
        }


def _weight(directory: Path) -> int:
    """Bytes of all files below; one that goes meanwhile weighs nothing."""
    total = 0
    for parent, _, names in os.walk(directory):  # which passes over a directory that goes meanwhile
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _lag_ms(address: tuple[str, int]) -> float:
    most = 0.0
    with BlockingWire(address, client_id="lag") as peer:
        for _ in range(_LAG_PROBES):
            began = time.monotonic()
            peer.ask(ApiVersionsRequest(), 0)
            most = max(most, time.monotonic() - began)
    return most * 1000


def series(file: Path) -> dict[str, list[tuple[float, float]]]:
    """By name, (seconds, value): "broker 1 rss_bytes", "bystander p99_ms". A last line that is cut off is left out."""
    records: dict[str, list[tuple[float, float]]] = {}
    for text in file.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            break
        for name, value in line["bystander"].items():
            if name != "count" and line["bystander"]["count"]:
                records.setdefault(f"bystander {name}", []).append((line["seconds"], value))
        for node_id, figures in line["brokers"].items():
            for name, value in (figures or {}).items():
                records.setdefault(f"broker {node_id} {name}", []).append((line["seconds"], value))
    return records
