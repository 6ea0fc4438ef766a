"""Admin calls about topics: the topics themselves, their partitions' offsets and records, and moves between brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.client.admin import requests, transactions
from odradek.client.admin.calls import AlreadyDone, Failures
from odradek.client.admin.reassignments import ReassignmentDescription, list_reassignments, reassign
from odradek.client.admin.session import AdminSession
from odradek.client.admin.types import CreatedTopic, NewTopic, TopicDescription
from odradek.client.consumer.offset_lookup import OffsetAndTimestamp, find_offsets
from odradek.client.network.errors import WrongArgumentError
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition

_CREATED: Final = AlreadyDone(
    code=ErrorCode.TOPIC_ALREADY_EXISTS, result=lambda name: CreatedTopic(name=name)
)
_DELETED: Final = AlreadyDone(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, result=lambda name: None)
_ISOLATIONS: Final = (0, 1)
NO_SUCH_RECORD: Final = OffsetAndTimestamp(offset=-1)
"""Answer to a time after the last record."""


class TopicCalls:
    """Asks the controller about topics, and leaders about partitions."""

    def __init__(self, session: AdminSession) -> None:
        self._session: Final = session

    async def create(
        self, topics: Iterable[NewTopic | str], validate_only: bool, timeout_s: float | None
    ) -> dict[str, CreatedTopic]:
        """Creates topics; a plain name gets the broker's defaults."""
        wanted = {topic.name: topic for topic in map(_new_topic, topics)}
        return await self._session.each(
            "create_topics",
            wanted,
            timeout_s,
            lambda some, left_s: requests.create_topics(some, validate_only, left_s),
            already=None if validate_only else _CREATED,
        )

    async def delete(self, topics: Iterable[str], timeout_s: float | None) -> None:
        """Deletes topics. One that an earlier attempt of this call has deleted is no error."""
        await self._session.each(
            "delete_topics", dict.fromkeys(topics), timeout_s, requests.delete_topics, already=_DELETED
        )

    async def create_partitions(
        self, totals: Mapping[str, int], validate_only: bool, timeout_s: float | None
    ) -> None:
        """Raises the number of partitions of each topic to a total."""
        await self._session.each(
            "create_partitions",
            totals,
            timeout_s,
            lambda some, left_s: requests.create_partitions(some, validate_only, left_s),
        )

    async def names(self, internal: bool, timeout_s: float | None) -> list[str]:
        """Returns the names of all topics, sorted."""
        response = await self._session.one("list_topics", timeout_s, requests.describe_topics(None))
        return sorted(name for name, topic in response.results.items() if internal or not topic.internal)

    async def describe(
        self, topics: Iterable[str] | None, operations: bool, timeout_s: float | None
    ) -> dict[str, TopicDescription]:
        """Describes these topics, or all."""
        names = None if topics is None else list(dict.fromkeys(topics))
        exchange = requests.describe_topics(names, operations)
        response = await self._session.one("describe_topics", timeout_s, exchange)
        return Failures("describe_topics", response.errors if names else {}).raise_or(response.results)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        """Deletes the records below an offset; returns where each partition begins now."""
        wanted = {TopicPartition(*tp): offset for tp, offset in before.items()}
        return await self._session.each(
            "delete_records", wanted, timeout_s, requests.delete_records, by=self._session.calls.by_leader
        )

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int, timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns an offset for each time in milliseconds, or for EARLIEST, LATEST, MAX_TIMESTAMP."""
        await self._session.start()
        limit_s = self._session.limit_s(timeout_s)
        if isolation not in _ISOLATIONS:
            raise WrongArgumentError(
                f"list_offsets: isolation must be 0 (all records) or 1 (committed ones), not {isolation}"
            )
        questions = {TopicPartition(*tp): timestamp for tp, timestamp in wanted.items()}
        answers = await find_offsets(self._session.cluster, questions, isolation=isolation, timeout_s=limit_s)
        timestamps = {tp: offset or NO_SUCH_RECORD for tp, offset in answers.found.items()}
        return Failures("list_offsets", answers.errors).raise_or(timestamps)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], unclean: bool, timeout_s: float | None
    ) -> dict[TopicPartition, bool]:
        """Elects leaders; returns False where the leader stays."""
        wanted = dict.fromkeys(TopicPartition(*tp) for tp in partitions)
        return await self._session.each(
            "elect_leaders",
            wanted,
            timeout_s,
            lambda some, left_s: transactions.elect_leaders(some, unclean, left_s),
        )

    async def reassign(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], timeout_s: float | None
    ) -> None:
        """Begins moves of partitions to these brokers, or cancels them."""
        wanted = {TopicPartition(*tp): brokers for tp, brokers in replicas.items()}
        await self._session.each("reassign_partitions", wanted, timeout_s, reassign)

    async def reassignments(self, timeout_s: float | None) -> dict[TopicPartition, ReassignmentDescription]:
        """Returns all moves under way."""
        return dict((await self._session.one("list_reassignments", timeout_s, list_reassignments())).results)


def _new_topic(topic: NewTopic | str) -> NewTopic:
    return NewTopic(topic) if isinstance(topic, str) else topic
