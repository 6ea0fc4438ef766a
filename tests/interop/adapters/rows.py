"""What goes into a client and what comes out, and the face that every adapter shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

READ_SECONDS_MAX = 20.0
"""How long an adapter waits for records that a test says are there before it gives up with what it has."""

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Acks = Literal["0", "1", "all"]
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record to send. Without `timestamp_ms` the client takes its own clock's."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """What the client says about a record that it sent. With acks=0 no broker gave it an offset: -1."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A record that a client has read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: Literal["CreateTime", "LogAppendTime"]


class RefusedError(Exception):
    """The broker (or the client on its behalf) refused; `code` is Kafka's number for why."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(f"error {code}: {text}")


class AbsentError(Exception):
    """The client is not installed on this machine; the message says how to get it."""


class Client(Protocol):
    """A third-party client that knows only where to bootstrap."""

    name: str

    def __init__(self, bootstrap: str) -> None: ...

    def produce(
        self,
        topic: str,
        rows: Sequence[Row],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
        request_bytes_max: int = 1_000_000,
    ) -> list[DeliveryReport]:
        """Send `rows` in order to their partitions and wait for all answers.

        :raises RefusedError: for the first record that was refused
        """

    def consume(self, topic: str, *, count: int, partition: int = 0, start: int | None = 0) -> list[Read]:
        """Assign one partition and read up to `count` records from offset `start` (None: the earliest)."""
