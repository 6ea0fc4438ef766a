"""What tests of programs on a broker share: records with times, and a program that runs until it has read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from odradek.client import Producer
from odradek.streams import Streams

TIMEOUT_S = 300


def run(app: Streams, checkpoint: Path, **more: Any) -> None:
    """Runs the program until it has read all that is there now. `more` goes to `Streams.start`."""
    with app.start(checkpoint=str(checkpoint), until_now=True, **more) as running:
        assert running.wait(TIMEOUT_S), "the queries did not end"


def send(servers: str, topic: Any, *records: tuple[str | None, str | None, int]) -> None:
    """Records are (key, value, timestamp in ms)."""
    with Producer(servers) as producer:
        for key, value, when in records:
            key_bytes, value_bytes = (None if text is None else text.encode() for text in (key, value))
            producer.send(topic.name, value_bytes, key=key_bytes, timestamp_ms=when)
