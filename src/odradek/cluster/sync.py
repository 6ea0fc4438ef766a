"""The controller's news for a broker, and the broker's report: payloads of ClusterSync, as JSON.

A snapshot is the whole image. A delta leads from one version of a controller's image to a later one: brokers and documents
that changed are whole in it; of a topic that stays, only the partitions that changed. Topics and documents that stay the same
are the same objects afterwards, so that "what changed?" can be asked by identity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.cluster.availability import LogEnd
from odradek.cluster.documents import DOCUMENTS, AnyDocument
from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.sync_pieces import TURN, Steps, members
from odradek.cluster.topic_documents import (
    partition_as_json,
    partition_from_json,
    topic_as_json,
    topic_from_json,
)
from odradek.model.aliases import Json
from odradek.model.errors import OdradekError
from odradek.model.ids import BrokerId

ReplicaId = tuple[UUID, int]
"""A topic's id and the number of a partition."""
_FORMAT: Final = 1
_PARTITION_BYTES: Final = 100


class UpdateKind(IntEnum):
    """The kind of a ClusterSync answer: its `kind` field."""

    NOTHING = 0
    DELTA = 1
    SNAPSHOT = 2


class UpdateDoesNotFit(OdradekError):
    """A delta that starts from another image than the local one: ask for a snapshot (version -1)."""


class SyncAnswer(NamedTuple):
    """The answer to a broker. `payload` is empty when there is nothing new."""

    controller_epoch: int
    version: int
    kind: UpdateKind
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """A broker's report on itself, in its request for news.

    `controller_epoch` and `version` belong to the image that it has applied, -1 when it has none in this
    life: a broker that comes back is taken into service only with its first report, and what it led is led
    under another epoch. `damaged` replicas have lost something that was committed; they are named until the
    image shows them out of sync. `offline` ones cannot be used now; each report names all of them. `lost`
    ones, offline or open, have not all that they had, and the image counts on them: they lead only if that
    loss is accepted. `lacking` ones lack something, too, but no one counts on them. Whether `uncertain` ones
    do is unknown; the report has their logs' end offsets. `opening` ones are in the image, and their logs are
    not open yet. `full` and `slow` ones can be read, and are on a disk that has no space, or that answers
    slowly. A broker `has_space` while one of its disks takes new replicas.
    """

    broker_id: BrokerId
    broker_epoch: int
    controller_epoch: int = -1
    version: int = -1
    damaged: frozenset[ReplicaId] = frozenset()
    offline: frozenset[ReplicaId] = frozenset()
    lost: frozenset[ReplicaId] = frozenset()
    lacking: frozenset[ReplicaId] = frozenset()
    uncertain: Mapping[ReplicaId, LogEnd] = field(default_factory=dict)
    opening: frozenset[ReplicaId] = frozenset()
    full: frozenset[ReplicaId] = frozenset()
    slow: frozenset[ReplicaId] = frozenset()
    has_space: bool = True
    is_leaving: bool = False

    def data(self) -> bytes:
        """Returns the request's payload; the other fields have places of their own."""
        document: dict[str, Json] = {
            "damaged": _replica_pairs(self.damaged),
            "offline": _replica_pairs(self.offline),
            "leaving": self.is_leaving,
        }
        for key, replicas in (
            ("lost", self.lost),
            ("lacking", self.lacking),
            ("opening", self.opening),
            ("full", self.full),
            ("slow", self.slow),
        ):
            if replicas:
                document[key] = _replica_pairs(replicas)
        if not self.has_space:
            document["has_space"] = False
        if self.uncertain:
            document["uncertain"] = sorted(
                [str(topic_id), index, *end] for (topic_id, index), end in self.uncertain.items()
            )
        return _bytes(document)

    def with_data(self, payload: bytes) -> BrokerReport:
        """Returns the report with a payload's replicas; an empty payload contains none."""
        stored = json.loads(payload) if payload else {}
        return replace(
            self,
            damaged=_replicas(stored.get("damaged", ())),
            offline=_replicas(stored.get("offline", ())),
            lost=_replicas(stored.get("lost", ())),
            lacking=_replicas(stored.get("lacking", ())),
            opening=_replicas(stored.get("opening", ())),
            full=_replicas(stored.get("full", ())),
            slow=_replicas(stored.get("slow", ())),
            uncertain={
                (UUID(topic_id), int(index)): LogEnd(int(epoch), int(offset))
                for topic_id, index, epoch, offset in stored.get("uncertain", ())
            },
            has_space=bool(stored.get("has_space", True)),
            is_leaving=bool(stored.get("leaving", False)),
        )


def _replica_pairs(replicas: frozenset[ReplicaId]) -> list[list[str | int]]:
    return sorted([str(topic_id), index] for topic_id, index in replicas)


def _replicas(stored: Iterable[tuple[str, int]]) -> frozenset[ReplicaId]:
    return frozenset((UUID(topic_id), int(index)) for topic_id, index in stored)


def _bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def snapshot(image: ClusterImage) -> Steps[bytes]:
    """Returns the whole image."""
    head = {**_head(image), "brokers": [_broker_as_json(broker) for broker in image.brokers]}
    pieces = [_bytes(head)[:-1]]
    yield from _document_pieces(DOCUMENTS, image, pieces)
    pieces.append(b',"topics":{')
    for number, topic in enumerate(image.topics.values()):
        pieces.append(b"," * (number > 0) + _bytes(topic.name) + b":")
        yield from _topic_pieces(topic, pieces)
    pieces.append(b"}}")
    return b"".join(pieces)


def _document_pieces(
    documents: Iterable[AnyDocument], image: ClusterImage, pieces: list[bytes]
) -> Steps[None]:
    """Appends the member with documents, one after another. Their size counts as a number of partitions."""
    number = -1
    for number, document in enumerate(documents):
        data = document.data(document.of(image))
        pieces.append((b"," if number else b',"documents":{') + _bytes(document.path) + b":" + data)
        yield _weight(len(data))
    if number >= 0:
        pieces.append(b"}")


def _weight(size_bytes: int) -> int:
    """Returns the number of partitions whose JSON has about this size."""
    return 1 + size_bytes // _PARTITION_BYTES


def _topic_pieces(topic: TopicImage, pieces: list[bytes]) -> Steps[None]:
    """Appends `topic_as_json`, in portions."""
    first = topic_as_json(replace(topic, partitions=()))
    del first["partitions"]
    pieces.append(_bytes(first)[:-1] + b',"partitions":[')
    for start in range(0, len(topic.partitions), TURN):
        portion = topic.partitions[start : start + TURN]
        pieces.append(
            b"," * (start > 0) + _bytes([partition_as_json(partition) for partition in portion])[1:-1]
        )
        yield len(portion)
    pieces.append(b"]}")
    yield 1


def delta(before: ClusterImage, after: ClusterImage) -> Steps[bytes]:
    """Encodes the difference between one image of a controller and a later one of the same."""
    update: dict[str, object] = {**_head(after), "from": before.version}
    if after.brokers != before.brokers:
        update["brokers"] = [_broker_as_json(broker) for broker in after.brokers]
    if not before.topics.keys() <= after.topics.keys():
        gone = [name for name in before.topics if name not in after.topics]
        update["gone"] = gone
    pieces = [_bytes(update)[:-1]]
    documents = [part for document in DOCUMENTS for part in document.changed_parts(before, after)]
    yield from _document_pieces(documents, after, pieces)
    changed = [name for name, topic in after.topics.items() if before.topics.get(name) is not topic]
    for number, name in enumerate(changed):
        topic = after.topics[name]
        pieces.append(b',"topics":{' if number == 0 else b",")
        pieces.append(_bytes(name) + b":" + _bytes(_topic_change(before.topics.get(name), topic)))
        yield len(topic.partitions)
    pieces.append(b"}}" if changed else b"}")
    return b"".join(pieces)


def apply_update(image: ClusterImage | None, payload: bytes) -> Steps[ClusterImage]:
    """Returns the image that a snapshot or a delta leads to. UpdateDoesNotFit when the delta starts from another image than
    this."""
    head: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for key, value in members(payload.decode(), apart=("documents", "topics")):
        if key == "documents":
            path, document = value
            stored[path] = document
            yield _weight(_PARTITION_BYTES * len(document))
        elif key == "topics":
            name, change = value
            changes[name] = change
            yield _size_of(change)
        else:
            head[key] = value
    since = head.get("from")
    if since is None:
        return (yield from _from_snapshot(image, head, stored, changes))
    if image is None or image.version != since or image.controller_epoch != head["controller_epoch"]:
        raise UpdateDoesNotFit(f"the update starts at version {since}, which this broker does not have")
    after = replace(image, version=head["version"], controller_id=BrokerId(head["controller"]))
    if "brokers" in head:
        after = replace(after, brokers=tuple(_broker_from_json(broker) for broker in head["brokers"]))
    after = yield from _with_documents(after, stored)
    gone = dict.fromkeys(name for name in head.get("gone", ()) if name in image.topics)
    topics = []
    for name, change in changes.items():
        topics.append(_changed_topic(None if name in gone else image.topics.get(name), name, change))
        yield _size_of(change)
    if topics or gone:
        after = after.with_changed_topics(topics, gone)
    return replace(after, version=head["version"])


def _with_documents(image: ClusterImage, stored: Mapping[str, Any]) -> Steps[ClusterImage]:
    """Returns the image with documents by path."""
    for document in DOCUMENTS:
        if document.path in stored:
            image = document.into(image, document.decode(stored[document.path]))
            yield 1 + len(stored[document.path])
    return image


def _topic_from(name: str, stored: dict[str, Any]) -> Steps[TopicImage]:
    partitions: list[PartitionImage] = []
    for start in range(0, len(stored["partitions"]), TURN):
        portion = stored["partitions"][start : start + TURN]
        partitions += map(partition_from_json, portion)
        yield len(portion)
    return replace(topic_from_json(name, stored | {"partitions": []}), partitions=tuple(partitions))


def _size_of(change: Mapping[str, Sized]) -> int:
    """Returns the size of a change in partitions."""
    return 1 + len(change.get("changed", ())) + len(change.get("partitions", ()))


def _head(image: ClusterImage) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "version": image.version,
        "controller_epoch": image.controller_epoch,
        "cluster": image.cluster_id,
        "controller": image.controller_id,
    }


def _from_snapshot(
    known: ClusterImage | None,
    head: dict[str, Any],
    documents: dict[str, Any],
    stored_topics: dict[str, Any],
) -> Steps[ClusterImage]:
    topics = {}
    for name, stored in stored_topics.items():
        topic = yield from _topic_from(name, stored)
        present = known.topics.get(name) if known is not None else None
        topics[name] = present if present is not None and present == topic else topic
    image = ClusterImage(
        version=head["version"],
        cluster_id=head["cluster"],
        controller_id=BrokerId(head["controller"]),
        brokers=tuple(_broker_from_json(broker) for broker in head["brokers"]),
        topics={},
        topics_by_id={},
        controller_epoch=head["controller_epoch"],
    )
    image = yield from _with_documents(image, documents)
    return replace(image.with_only_topics(topics), version=head["version"])


def _topic_change(before: TopicImage | None, after: TopicImage) -> dict[str, Json]:
    if (
        before is None
        or before.topic_id != after.topic_id
        or before.configs != after.configs
        or len(before.partitions) > len(after.partitions)
    ):
        return topic_as_json(after)
    changed = {
        str(index): partition_as_json(partition)
        for index, partition in enumerate(after.partitions)
        if index >= len(before.partitions) or before.partitions[index] is not partition
    }
    return {"changed": changed}


def _changed_topic(present: TopicImage | None, name: str, change: Mapping[str, Any]) -> TopicImage:
    if "changed" not in change:
        return topic_from_json(name, dict(change))
    if present is None:
        raise UpdateDoesNotFit(f"the update changes topic {name!r}, which this broker does not know")
    partitions = list(present.partitions)
    for index, stored in change["changed"].items():
        partition = partition_from_json(stored)
        if int(index) < len(partitions):
            partitions[int(index)] = partition
        else:
            partitions.append(partition)
    return replace(present, partitions=tuple(partitions))


def _broker_as_json(broker: BrokerImage) -> list[object]:
    """Encodes a broker. One without a control plane has the form before there were any, so that older brokers can read it."""
    control_plane = [] if broker.control_plane is None else [broker.control_plane]
    return [
        broker.broker_id,
        broker.epoch,
        broker.host,
        broker.port,
        broker.rack,
        {name: list(address) for name, address in broker.endpoints.items()},
        broker.is_leaving,
        broker.is_cordoned,
        *control_plane,
    ]


def _broker_from_json(stored: list[Any]) -> BrokerImage:
    broker_id, epoch, host, port, rack, endpoints, is_leaving, is_cordoned, *control_plane = stored
    return BrokerImage(
        broker_id=broker_id,
        epoch=epoch,
        host=host,
        port=port,
        rack=rack,
        endpoints={name: (where, number) for name, (where, number) in endpoints.items()},
        is_leaving=is_leaving,
        is_cordoned=is_cordoned,
        control_plane=control_plane[0] if control_plane else None,
    )
