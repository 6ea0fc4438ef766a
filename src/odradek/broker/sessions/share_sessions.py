"""Share sessions (KIP-932): which partitions a member of a share group reads here, and in which order its requests come.

A member has one session; ShareFetch with epoch 0 opens it, -1 closes it, and in between every ShareFetch and
ShareAcknowledge has the next epoch. It ends with the connection of its last request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.net.connection import Connection

OPENING: Final = 0
CLOSING: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
PARTITIONS_MAX: Final = 10_000
"""The partitions in one session."""
ALL_PARTITIONS_MAX: Final = 250_000
"""The partitions in all sessions: some 100 MB."""

ReadPartition = tuple[UUID, int]


class ShareSessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    """The share session of one member on this broker. `partitions` are in the order in which they are read next."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: ShareSessionKey, connection: Connection) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 0
        self.partitions: dict[ReadPartition, None] = {}

    def advance(self, epoch: int) -> None:
        """Advances the epoch. Raises INVALID_SHARE_SESSION_EPOCH unless the given one is next."""
        if epoch != self.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the session of member {self.key.member_id!r} expects epoch {self.epoch}, not {epoch}",
            )
        self.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1

    def rotate(self) -> None:
        """Lets the next fetch begin with another partition, so that a full answer leaves none out for long."""
        if len(self.partitions) > 1:
            first = next(iter(self.partitions))
            del self.partitions[first]
            self.partitions[first] = None


class ShareSessions:
    """The share sessions of a broker, by member."""

    def __init__(self) -> None:
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        self._of_connection: dict[Connection, dict[ShareSessionKey, None]] = {}
        self._group_sizes: Counter[str] = Counter()
        self._partition_count = 0
        """The number of partitions in all sessions."""

    def open(self, key: ShareSessionKey, connection: Connection, sessions_max: int) -> ShareSession:
        """Opens a session in place of the member's previous one. Raises SHARE_SESSION_LIMIT_REACHED."""
        if key not in self._sessions and len(self._sessions) >= sessions_max:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"{sessions_max} members read from share groups here: group.share.max.share.sessions allows no more",
            )
        self.close(key)
        session = self._sessions[key] = ShareSession(key, connection)
        self._of_connection.setdefault(connection, {})[key] = None
        self._group_sizes[key.group_id] += 1
        session.advance(OPENING)
        return session

    def find(self, key: ShareSessionKey) -> ShareSession:
        """Returns the session. Raises SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {key.member_id!r} has no share session here"
            )
        return session

    def change(
        self, session: ShareSession, wanted: Iterable[ReadPartition], forgotten: Iterable[ReadPartition]
    ) -> None:
        """What the session reads. INVALID_REQUEST and SHARE_SESSION_LIMIT_REACHED, with the session as it was, when that is too
        much: a partition that is not there stays in it, too."""
        partitions = session.partitions | dict.fromkeys(wanted)
        for read_partition in forgotten:
            partitions.pop(read_partition, None)
        count = len(partitions)
        if count > PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the session would read {count} partitions, and may read {PARTITIONS_MAX}: forget some first",
            )
        total = self._partition_count + count - len(session.partitions)
        if count > len(session.partitions) and total > ALL_PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"all share sessions here would read {total} partitions, and may read {ALL_PARTITIONS_MAX}",
            )
        session.partitions = partitions
        if self._sessions.get(session.key) is session:
            self._partition_count = total

    def move(self, session: ShareSession, connection: Connection) -> None:
        """Moves a session to the connection that its last request came by."""
        self._leave_connection(session)
        session.connection = connection
        self._of_connection.setdefault(connection, {})[session.key] = None

    def has(self, key: ShareSessionKey) -> bool:
        return key in self._sessions

    def close(self, key: ShareSessionKey) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        self._partition_count -= len(session.partitions)
        self._leave_connection(session)
        self._group_sizes[key.group_id] -= 1
        if not self._group_sizes[key.group_id]:
            del self._group_sizes[key.group_id]

    def any_of(self, group_id: str) -> bool:
        """Tells whether any member of the group has a session."""
        return group_id in self._group_sizes

    def of_connection(self, connection: Connection) -> list[ShareSessionKey]:
        return list(self._of_connection.get(connection, ()))

    def _leave_connection(self, session: ShareSession) -> None:
        keys = self._of_connection[session.connection]
        del keys[session.key]
        if not keys:
            del self._of_connection[session.connection]
