"""Writes the source topic: keys in turn, each with numbers that go up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from odradek import Producer
from odradek.model.errors import OdradekError

KEYS: Final = 40
AHEAD_MAX: Final = 20_000
"""Records that have been sent and have not come out yet: what comes out after the last kill must not take for ever."""


class SourceWriter:
    """In a thread of its own, until it is stopped. The topic itself says what it could send; `come_out` how much came out."""

    def __init__(self, servers: str, topic: str, *, per_second: int, come_out: Callable[[], int]) -> None:
        self._come_out = come_out
        self._producer = Producer(servers, linger_ms=5)
        self._topic = topic
        self._pause_s = 1 / per_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(self._pause_s):
            if number - self._come_out() > AHEAD_MAX:
                continue
            try:
                self._producer.send(self._topic, b"%d" % (number // KEYS), key=b"k%d" % (number % KEYS))
            except OdradekError:
                continue
            number += 1
