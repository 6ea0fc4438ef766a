"""The controller's changes of everything that is a document: settings, quotas, features; and blocks of producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from odradek.cluster.availability import TopicRules, rules_of
from odradek.cluster.controller.changes import Changes
from odradek.cluster.controller.store import PRODUCER_ID_BLOCK, in_commits
from odradek.cluster.controller.topics import with_fewer_eligible
from odradek.cluster.documents import (
    BROKER_CONFIGS,
    AnyDocument,
    AnyPartedDocument,
    Document,
    PartedDocument,
    Stored,
)
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ProducerId
from odradek.registry import Operation

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
        self, document: Stored[T], change: Callable[[T], Awaitable[T]], *, validate_only: bool
    ) -> T:
        return await self._changes.applied(lambda: self._alter(document, change, validate_only=validate_only))

    async def allocate_producer_ids(self) -> range:
        first = await self._changes.alone(
            lambda: self._changes.store.allocate_producer_ids(PRODUCER_ID_BLOCK)
        )
        return range(ProducerId(first), first + PRODUCER_ID_BLOCK)

    async def _alter(
        self, document: Stored[T], change: Callable[[T], Awaitable[T]], *, validate_only: bool
    ) -> T:
        if (
            not validate_only
            and isinstance(document, PartedDocument)
            and self._changes.store.is_former(document)
        ):
            await self._store_in_parts(document)
        before = self._changes.image
        value = await change(document.of(before))
        after = document.into(before, value)
        parts = list(document.changed_parts(before, after))
        if validate_only or not parts:
            return value
        writes: list[tuple[AnyDocument, Operation]] = []
        for part in parts:
            writes.append((part, self._write_of(part, before, after)))
            await asyncio.sleep(0)
        if document.path == BROKER_CONFIGS.path:
            await self._changes.commit_topics(
                self._with_fewer_eligible(after),
                finish=lambda image: _with_parts(image, parts, after),
                more=[operation for _, operation in writes],
            )
            return value
        for portion in in_commits(writes):
            image = _with_parts(self._changes.image, [part for part, _ in portion], after)
            await self._changes.commit([operation for _, operation in portion], image)
        return value

    async def _store_in_parts(self, document: AnyPartedDocument) -> None:
        """Writes all parts of a document that an earlier commit stored whole. It counts until the last of them is written."""
        image = self._changes.image
        writes: list[tuple[object, Operation]] = []
        for part in document.parts:
            writes.append((part, self._changes.store.document(part, part.data(part.of(image)))))
            await asyncio.sleep(0)
        writes.append((document, self._changes.store.emptied(document)))
        for portion in in_commits(writes):
            await self._changes.commit([operation for _, operation in portion], self._changes.image)

    def _write_of(self, part: AnyDocument, before: ClusterImage, after: ClusterImage) -> Operation:
        data = _checked_data(part, part.of(before), part.of(after))
        return self._changes.store.document(part, data)

    def _with_fewer_eligible(self, image: ClusterImage) -> list[TopicImage]:
        """Topics that inherit min.insync.replicas: who is eligible is settled before the leaders get the new value."""
        return [
            with_fewer_eligible(topic, rules_of(image, topic, self._defaults))
            for topic in image.topics.values()
            if any(partition.eligible for partition in topic.partitions)
        ]


def _with_parts(image: ClusterImage, parts: Sequence[AnyDocument], after: ClusterImage) -> ClusterImage:
    """Returns an image with some documents of another one."""
    for part in parts:
        image = part.into(image, part.of(after))
    return image


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
