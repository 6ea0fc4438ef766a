"""Fetch sessions (KIP-227): the first request names all partitions, later ones only changes.

The broker remembers the partitions of a session, and answers only about those with news. Both sides count requests; when
the counts differ, the broker refuses and a full request begins a new session. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
_EPOCH_MAX: Final = 0x7FFF_FFFF


class PartitionFetch(NamedTuple):
    """One partition's fetch: its start and its limit. A tuple, since it is compared and rebuilt for every request."""

    topic_id: UUID
    fetch_offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The partitions to put into the next request."""

    session_id: int
    epoch: int
    partition_fetches: Mapping[TopicPartition, PartitionFetch]
    forgotten: Mapping[TopicPartition, PartitionFetch]


class ClientFetchSession:
    """The session with one broker. Alternate `next` with one of `answered`, `refused` and `lost`."""

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._known: dict[TopicPartition, PartitionFetch] = {}

    def next(self, wanted: dict[TopicPartition, PartitionFetch]) -> SessionRequest:
        """Returns the request by which the broker comes to hold exactly `wanted`."""
        known, self._known = self._known, wanted
        if self._epoch == FULL_EPOCH:
            return SessionRequest(
                session_id=self._id, epoch=FULL_EPOCH, partition_fetches=wanted, forgotten={}
            )
        changed = {
            tp: partition_fetch for tp, partition_fetch in wanted.items() if known.get(tp) != partition_fetch
        }
        forgotten = {
            tp: partition_fetch
            for tp, partition_fetch in known.items()
            if tp not in wanted or wanted[tp].topic_id != partition_fetch.topic_id
        }
        return SessionRequest(
            session_id=self._id, epoch=self._epoch, partition_fetches=changed, forgotten=forgotten
        )

    def answered(self, session_id: int) -> None:
        """Notes an answer without a session error. `session_id` 0: the broker keeps no session."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FULL_EPOCH
        elif self._epoch == FULL_EPOCH or session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1

    def refused(self, code: ErrorCode) -> None:
        """Begins again after a refusal of the whole request, and gives up the session if it still exists."""
        self._epoch = FULL_EPOCH
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION

    def lost(self) -> None:
        """Begins again without an answer: the broker's epoch is unknown."""
        self._epoch = FULL_EPOCH
