"""The records of a kind of groups in `__consumer_offsets`: each key has a version of its own, which
identifies its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.groups.shard.formats import read, version_of, versioned
from odradek.protocol import Message
from odradek.shards import NewRecord

K = TypeVar("K", bound=Message)
V = TypeVar("V", bound=Message)


class GroupRecord(NamedTuple, Generic[K, V]):
    """A record of a group, read; a `value` of None deletes."""

    key: K
    value: V | None

    @property
    def group_id(self) -> str:
        key: Any = self.key
        group_id: str = key.group_id
        return group_id

    def encoded(self) -> NewRecord:
        value = None if self.value is None else versioned(self.value, 0)
        return NewRecord(versioned(self.key, self.key.VERSIONS.min), value)


class GroupRecords(Generic[K, V]):
    """The types of the records of one kind of group. `kinds` maps the type of each key to the type of its
    value."""

    def __init__(self, kinds: Mapping[type[K], type[V]]) -> None:
        self._kinds = {key.VERSIONS.min: (key, value) for key, value in kinds.items()}

    @property
    def key_versions(self) -> tuple[int, ...]:
        return tuple(self._kinds)

    def read(self, key: bytes, value: bytes | None) -> GroupRecord[K, V]:
        """Returns the record of one of `key_versions`. Raises MalformedMessage, or UnknownVersion for a value newer than we
        are."""
        key_type, value_type = self._kinds[version_of(key)]
        return GroupRecord(read(key_type, key), None if value is None else read(value_type, value))
