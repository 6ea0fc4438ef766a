"""The controller's changes of everything that is a document: settings, quotas, features; and blocks of producer ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from odradek.cluster.availability import TopicRules, rules_of
from odradek.cluster.controller.changes import Changes
from odradek.cluster.controller.store import PRODUCER_ID_BLOCK
from odradek.cluster.controller.topics import with_fewer_eligible
from odradek.cluster.documents import BROKER_CONFIGS, Document
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ProducerId

T = TypeVar("T")

DOCUMENT_BYTES_MAX: Final = 700_000
"""A document is one node, and a ZooKeeper takes about 1 MB."""


class SettingChanges:
    """The controller's changes of documents, and its allocation of producer ids. See `Controller` for what each does, and
    raises."""

    def __init__(self, changes: Changes, defaults: TopicRules) -> None:
        self._changes = changes
        self._defaults = defaults

    async def alter(
        self, document: Document[T], change: Callable[[T], Awaitable[T]], *, validate_only: bool
    ) -> T:
        return await self._changes.applied(lambda: self._alter(document, change, validate_only=validate_only))

    async def allocate_producer_ids(self) -> range:
        first = await self._changes.alone(
            lambda: self._changes.store.allocate_producer_ids(PRODUCER_ID_BLOCK)
        )
        return range(ProducerId(first), first + PRODUCER_ID_BLOCK)

    async def _alter(
        self, document: Document[T], change: Callable[[T], Awaitable[T]], *, validate_only: bool
    ) -> T:
        before = document.of(self._changes.image)
        after = await change(before)
        if validate_only or after == before:
            return after
        data = _checked_data(document, before, after)
        topics: Sequence[TopicImage] = ()
        if document.path == BROKER_CONFIGS.path:
            topics = self._with_fewer_eligible(document.into(self._changes.image, after))
        await self._changes.commit_topics(
            topics,
            finish=lambda image: document.into(image, after),
            more=[self._changes.store.document(document, data)],
        )
        return after

    def _with_fewer_eligible(self, image: ClusterImage) -> list[TopicImage]:
        """Topics that inherit min.insync.replicas: who is eligible is settled before the leaders get the new value."""
        return [
            with_fewer_eligible(topic, rules_of(image, topic, self._defaults))
            for topic in image.topics.values()
            if any(partition.eligible for partition in topic.partitions)
        ]


def _checked_data(document: Document[T], before: T, after: T) -> bytes:
    """Raises POLICY_VIOLATION when the document grows beyond what a registry takes; one that is larger already may shrink."""
    data = document.data(after)
    if len(data) > DOCUMENT_BYTES_MAX and len(data) > len(document.data(before)):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{document.path} would take {len(data)} bytes in the registry, which takes {DOCUMENT_BYTES_MAX}: "
            "remove what is not needed first",
        )
    return data
