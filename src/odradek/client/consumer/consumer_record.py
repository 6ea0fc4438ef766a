"""A record as a consumer hands it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple

from odradek.model.public import public
from odradek.records import Header, TimestampType

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    KeyT = TypeVar("KeyT", default=bytes)
    ValueT = TypeVar("ValueT", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    KeyT = TypeVar("KeyT")
    """As `K`, of one method instead of a class."""
    ValueT = TypeVar("ValueT")


@public("odradek")
class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record and where it was. A tuple and not a dataclass: millions of them are made.

    `timestamp_ms` is in milliseconds since 1970, -1 where the producer set none; `timestamp_type` tells
    whether producer or broker set it. `key` and `value` are bytes or None, or what the deserializers return;
    None is a tombstone in a compacted topic. `headers` are pairs of a name and bytes or None. `leader_epoch`
    is -1 where the broker sends none.

    `K` and `V` are what the deserializers return, `bytes` without one: type checkers know it, and Python ignores it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 where the producer gave none."""
    timestamp_type: TimestampType
    key: K | None
    """bytes or None, or what the key_deserializer made of it."""
    value: V | None
    """bytes or None (a tombstone in a compacted topic), or what the value_deserializer made of it."""
    headers: tuple[Header, ...]
    leader_epoch: int
    """-1 where the broker does not say."""
