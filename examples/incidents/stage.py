"""What the ten incidents share: a cluster with metrics, actors in the background, the command line, and the play itself.

An incident is a script with one `Incident`. Run as a program it makes the incident, shows in three steps how it is found
and mended, and waits at each, and at the end, until you press Enter; with `--no-wait` it goes through at once. Nothing outlives
it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from odradek.testing import Cluster

SECONDS_MAX: Final = 90.0
"""A command, or the end of a program, does not take longer, not even on a busy machine."""
_ODRADEK: Final = [sys.executable, "-c", "import sys; from odradek.cli.main import main; sys.exit(main())"]
_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)

Samples = dict[tuple[str, str], float]
"""Samples by their name and their labels, as they are written in a scrape."""
Actor = Callable[[threading.Event], None]
"""What runs in the background until the event is set."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of `odradek` that one types, what it is for, and a text in its output that tells."""

    why: str
    command: Sequence[str]
    telling: str = ""


class Incident(ABC):
    """An incident: how it is made, which alert fires, and the steps from the alert to the end of it."""

    title = ""
    alert = ""
    """The alert of deploy/prometheus/alerts.yml that fires when it lasts."""
    brokers = 1
    settings: Mapping[str, str] = {}
    """Settings of the brokers."""
    seconds_max = SECONDS_MAX
    """The time within which figures show what has happened."""
    data: Path | None = None
    """Where the brokers' data is; by default in a directory that goes away."""

    def environment(self) -> Mapping[str, str]:
        """Returns variables of the brokers' processes."""
        return {}

    @abstractmethod
    def make(self, stage: Stage) -> None:
        """Makes the incident. It returns when the figures show it."""

    @abstractmethod
    def steps(self, stage: Stage) -> Sequence[Step]:
        """The commands that show what is wrong, and why."""

    @abstractmethod
    def mend(self, stage: Stage) -> Sequence[Step]:
        """Mends it by itself, or by the commands that it returns: they are run afterwards."""

    @abstractmethod
    def is_over(self, stage: Stage) -> bool:
        """Whether the figures show that it is mended."""


class Stage:
    """The cluster of an incident, and all that runs beside it. A context manager that ends everything."""

    def __init__(self, incident: Incident) -> None:
        self.incident: Final = incident
        ports = free_ports(incident.brokers)
        self.metrics: Final = [f"127.0.0.1:{port}" for port in ports]
        """The metrics listener of each broker."""
        settings = {"metrics.listeners": self.metrics[0], **incident.settings}
        self.cluster: Final = Cluster(incident.brokers, settings, data=incident.data)
        self.stopping: Final = threading.Event()
        self._ending: Final = ExitStack()
        self._failures: list[BaseException] = []

    def __enter__(self) -> Self:
        variables = self.incident.environment()
        os.environ.update(variables)  # the brokers' processes inherit them
        try:
            self._ending.enter_context(self.cluster)
        finally:
            for name in variables:
                del os.environ[name]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._ending.close()
        if self._failures and error is None:
            raise self._failures[0]

    @property
    def address(self) -> str:
        return self.cluster.address

    def in_background(self, actor: Actor) -> threading.Event:
        """Starts the actor on a thread. Returns the event that ends it; the end of the stage ends it, too."""
        ended = threading.Event()

        def play() -> None:
            try:
                actor(ended)
            except BaseException as failure:  # noqa: BLE001 - the end of the stage raises it
                if not self.stopping.is_set():
                    self._failures.append(failure)

        thread = threading.Thread(target=play, name=getattr(actor, "__name__", "actor"), daemon=True)
        self._ending.callback(thread.join, SECONDS_MAX)
        self._ending.callback(ended.set)
        thread.start()
        return ended

    def program(self, words: Sequence[str], log: Path) -> None:
        """Starts a program in the background. The end of the stage asks it to end, and kills it if it does not."""
        with log.open("w") as output:
            process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)

        def end() -> None:
            process.terminate()
            try:
                process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self._ending.callback(end)

    def odradek(self, *words: str) -> str:
        """Runs a command of `odradek`, and returns what it printed. Raises CalledProcessError with its words."""
        done = subprocess.run(
            [*_ODRADEK, *words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        if done.returncode:
            raise RuntimeError(f"odradek {shlex.join(words)} failed: {done.stderr or done.stdout}")
        return done.stdout

    def scraped(self) -> list[Samples | None]:
        """Returns the samples of each broker; None for one that does not answer."""
        return [samples_at(address) for address in self.metrics]

    def total(self, name: str, having: str = "") -> float:
        """Returns the sum of a metric over all brokers and labels that contain the text `having`."""
        return sum(
            value
            for samples in self.scraped()
            for (family, labels), value in (samples or {}).items()
            if family == name and having in labels
        )

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Returns when it is so. Raises TimeoutError, which says what did not happen."""
        ends = time.monotonic() + self.incident.seconds_max
        while not is_so():
            if self._failures:
                raise self._failures[0]
            if time.monotonic() > ends:
                raise TimeoutError(f"within {self.incident.seconds_max:.0f} s it did not happen that {what}")
            time.sleep(0.2)


def samples_at(address: str) -> Samples | None:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=SECONDS_MAX) as page:
            text = page.read().decode()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
    return {(name, labels): float(value) for name, labels, value in _SAMPLE.findall(text)}


def free_ports(count: int) -> range:
    """Returns ports that follow one another, of which none was in use just now."""
    for _ in range(100):
        with ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in range(count)]
            sockets[0].bind(("127.0.0.1", 0))
            first = sockets[0].getsockname()[1]
            try:
                for number, other in enumerate(sockets[1:], 1):
                    other.bind(("127.0.0.1", first + number))
            except (OSError, OverflowError):
                continue
            return range(first, first + count)
    raise RuntimeError(f"there are no {count} free ports that follow one another")


def play(incident: Incident) -> None:
    """The play of an incident on a terminal."""
    parser = argparse.ArgumentParser(description=incident.title)
    parser.add_argument("--no-wait", action="store_true", help="do not wait for Enter between the steps")
    waits = not parser.parse_args().no_wait
    print(f"{incident.title}\n\nStarting {incident.brokers} broker(s) ...", flush=True)
    with Stage(incident) as stage:
        print(f"  clients: {stage.address}\n  metrics: {', '.join(stage.metrics)}", flush=True)
        listeners = " ".join(f"--metrics {address}" for address in stage.metrics)
        print(f"  in the browser: odradek console --bootstrap {stage.address} {listeners}", flush=True)
        incident.make(stage)
        print(f"\nIt has happened. The alert {incident.alert} fires if it lasts.", flush=True)
        for step in incident.steps(stage):
            show(stage, step, waits=waits)
        for step in incident.mend(stage):
            show(stage, step, waits=waits)
        stage.until(lambda: incident.is_over(stage), "the figures are as before")
        print("\nIt is over: the figures are as before.", flush=True)
        if waits:
            input("  (Enter ends the brokers; look at the console before) ")


def show(stage: Stage, step: Step, *, waits: bool) -> None:
    print(f"\n{step.why}\n  odradek {shlex.join(step.command)}", flush=True)
    if waits:
        input("  (Enter runs it) ")
    print("\n" + stage.odradek(*step.command), flush=True)
