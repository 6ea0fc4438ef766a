"""Generated frames by the million: requests made from the schemas, most of them damaged, sent in small batches.

Our own decoder says beforehand what each frame is. One that it can read must be answered, in its turn; one that it cannot ends
its connection without an answer. So each batch is some readable frames and, last, one that is not.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from tests.hostile.mutations import MUTATIONS
from tests.hostile.values import Known, Wild
from tests.kit.wire import BlockingWire, request_frame

from odradek.protocol import MalformedMessage, Message, decode, decode_request_header, decode_response
from odradek.protocol.api import API_VERSIONS_KEY, APIS, Api
from odradek.runtime.ports import Buffer

_BATCH: Final = 8
_TEMPLATES: Final = 12
"""Good requests of each API and version, from which others are made."""
_WAIT_MS_MAX: Final = 300
_SIZE: Final = struct.Struct(">i")
_CORRELATION_POSITION: Final = 4

_LEFT_OUT: Final = frozenset({"UnregisterBroker", "Forward", "ClusterSync"})
"""These may take a broker out of its cluster by what they say, rightly or not: they are for brokers."""
_WISHES: Final = frozenset(
    {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "AlterClientQuotas",
        "AlterConfigs",
        "IncrementalAlterConfigs",
    }
)
"""A changed byte may be a wish for hundreds of partitions, the end of a topic, or a quota for everyone: legal, and obeyed.
What the broker then holds is no leak."""
_WAITING: Final = frozenset({"JoinGroup", "SyncGroup", "Fetch", "ShareFetch"})
"""They may wait, for others or for records."""


class Fate(Enum):
    """The outcome that a frame must have."""

    ANSWERED = "answered"
    DROPPED = "dropped"
    EITHER = "either"
    """An answer may take its time, or there is none by right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    data: bytes
    """Without its size."""
    fate: Fate

    @property
    def api_and_version(self) -> tuple[int, int]:
        key, version = struct.unpack_from(">hh", self.data.ljust(4, b"\0"))
        return key, version


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Frames for one connection, in order: readable ones, then perhaps one that is not. The same seed and number make the same
    batch."""

    number: int
    frames: tuple[Frame, ...]


class Generator:
    """All batches of one seed, each by its number."""

    def __init__(self, seed: int, known: Known) -> None:
        self._seed = seed
        self._served = known.api_keys
        chance = random.Random(f"{seed} templates")
        wild = Wild(chance, known)
        self._templates = [
            _templates(api, version, wild)
            for api in APIS.values()
            if api.name not in _LEFT_OUT
            for version in api.versions
        ]

    def batch(self, number: int) -> Batch:
        chance = random.Random(f"{self._seed} {number}")
        frames: list[Frame] = []
        while len(frames) < _BATCH:
            frame = self._frame(chance, len(frames))
            frames.append(frame)
            if frame.fate is not Fate.ANSWERED:
                break
        return Batch(number=number, frames=tuple(frames))

    def _frame(self, chance: random.Random, place: int) -> Frame:
        templates = chance.choice(self._templates)
        frame = bytearray(chance.choice(templates))
        struct.pack_into(">i", frame, _CORRELATION_POSITION, place)
        data = bytes(frame)
        if chance.random() < 0.6:
            chance.choice(MUTATIONS)(chance, frame)
            if not is_wish(frame):
                data = bytes(frame)
        return Frame(data=data, fate=fate_of(data, self._served))


def _templates(api: Api, version: int, wild: Wild) -> list[bytes]:
    return [request_frame(wild.request(api.request, version), version)[4:] for _ in range(_TEMPLATES)]


def fate_of(data: bytes, served: frozenset[int]) -> Fate:
    """What a broker that serves these APIs has to do with these bytes."""
    try:
        header, position = decode_request_header(data)
        api = APIS.get(header.api_key)
        if api is None or api.key not in served:
            return Fate.DROPPED
        if api.key == API_VERSIONS_KEY:
            return Fate.EITHER  # any version is answered (KIP-511), readable or not
        if header.api_version not in api.versions:
            return Fate.DROPPED
        message, end = decode(api.request, header.api_version, data, position)
    except MalformedMessage:
        return Fate.EITHER if data[:2] == _SIZE.pack(API_VERSIONS_KEY)[2:] else Fate.DROPPED
    if api.name in _LEFT_OUT or header.api_version not in api.offered():
        return Fate.EITHER
    if end != len(data) or api.internal or api.name in _WAITING or _is_patient(message):
        return Fate.EITHER
    return Fate.ANSWERED


def is_wish(data: Buffer) -> bool:
    """Whether a broker can read this as a wish for something that stays, whatever it was made from."""
    try:
        header, position = decode_request_header(data)
        api = APIS.get(header.api_key)
        if api is None or api.name not in _WISHES or header.api_version not in api.versions:
            return False
        decode(api.request, header.api_version, data, position)
    except MalformedMessage:
        return False
    return True


def _is_patient(message: Message) -> bool:
    """Whether the request itself allows the broker to wait, or to be silent."""
    if getattr(message, "acks", -1) == 0:
        return True
    return any(abs(getattr(message, name)) > _WAIT_MS_MAX for name in _waits(type(message)))


@cache
def _waits(cls: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in cls.FIELDS if field.name in {"timeout_ms", "max_wait_ms"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A batch that was not treated as it should be."""

    batch: int
    what: str


def play(peer: BlockingWire, batch: Batch, *, reads_answers: bool) -> Iterator[Fault]:
    """Send a batch on a connection of its own, and compare. The peer's time limit is that of an answer."""
    readable = [frame for frame in batch.frames if frame.fate is Fate.ANSWERED]
    if readable:
        peer.send(b"".join(_with_size(frame) for frame in readable))
    for place, frame in enumerate(readable):
        wrong = _wrong_answer(peer, place, frame, reads_answers=reads_answers)
        if wrong is not None:
            yield Fault(batch=batch.number, what=f"{_named(frame)} {wrong}")
            return
    for frame in batch.frames[len(readable) :]:
        peer.send(_with_size(frame))
        if frame.fate is Fate.DROPPED:
            wrong = _not_dropped(peer)
            if wrong is not None:
                yield Fault(batch=batch.number, what=f"{_named(frame)} is malformed, and {wrong}")


def _with_size(frame: Frame) -> bytes:
    return _SIZE.pack(len(frame.data)) + frame.data


def _wrong_answer(peer: BlockingWire, place: int, frame: Frame, *, reads_answers: bool) -> str | None:
    try:
        response = peer.receive()
    except TimeoutError:
        return "has no answer"
    except OSError:
        return "is in order, and its connection is closed"
    if _SIZE.unpack_from(response)[0] != place:
        return "is answered out of order"
    if reads_answers:
        try:
            decode_response(*frame.api_and_version, response)
        except MalformedMessage as error:
            return f"has an answer that cannot be read: {error}"
    return None


def _not_dropped(peer: BlockingWire) -> str | None:
    try:
        peer.receive()
    except TimeoutError:
        return "its connection stays open"
    except OSError:
        return None
    return "is answered"


def _named(frame: Frame) -> str:
    key, version = frame.api_and_version
    api = APIS.get(key)
    return f"{api.name if api else key} v{version} {frame.data[:80].hex()}"


def connect(address: tuple[str, int], timeout_s: float) -> BlockingWire:
    """Ends with a reset, so that thousands of connections leave no ports behind that wait."""
    peer = BlockingWire(address, timeout_s=timeout_s)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return peer
