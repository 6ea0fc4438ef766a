"""The controller's hold on the registry: reads the cluster's state, and writes it as long as the controller is in office.

Each commit begins with the term's check, so a deposed controller changes nothing. The versions of the nodes are remembered:
only the controller writes them. After a commit whose outcome is unknown nothing is written before the state was read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.cluster.documents import (
    DOCUMENTS,
    PARTED_DOCUMENTS,
    AnyDocument,
    AnyPartedDocument,
    Stored,
)
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.cluster.registration import Registration, registered, registered_before, removal, unregistration
from odradek.cluster.topic_documents import topic_data, topic_from
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.model.parted import PARTS
from odradek.registry import (
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Registry,
    RegistryConflict,
    RegistryError,
    SessionExpired,
)
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.registry.election import Term

T = TypeVar("T")

TOPICS: Final = "/topics"
PRODUCER_IDS: Final = "/producer_ids"
PRODUCER_ID_BLOCK: Final = 1000
_OPERATIONS_MAX: Final = 500
_BYTES_MAX: Final = 700_000
"""The most bytes of one commit: a ZooKeeper takes about 1 MB."""
_READS_AT_ONCE: Final = 64
_log = events.caused_by_peers("cluster")


class ClusterStore:
    """The cluster's documents in the registry. Without a `term` it only reads. `on_deposed` is called once, when the term or
    the session turns out to be over."""

    def __init__(self, registry: Registry, term: Term | None, on_deposed: Callable[[], None]) -> None:
        self._registry = registry
        self._term = term
        self._on_deposed = on_deposed
        self._versions: dict[str, int] = {}
        self._former: set[str] = set()
        """Paths of documents that are stored whole, as earlier commits stored them."""
        self.is_deposed = False
        self.is_uncertain = False
        """True if a commit may or may not have happened: `load` before the next."""

    @property
    def epoch(self) -> int:
        """The controller epoch of the term; 0 without one."""
        return 0 if self._term is None else self._term.epoch

    # -- reading

    async def load(self, image: ClusterImage) -> ClusterImage:
        """Returns the image with the topics and documents that the registry holds. Raises RegistryError when it cannot be read.

        What is the same as before stays the same object.
        """
        await self._registry.sync()
        await self._check_office()
        self._versions.clear()
        topics: dict[str, TopicImage] = {}
        names = await self._registry.children(TOPICS)
        for some in _in_turns(names, _READS_AT_ONCE):
            nodes = await asyncio.gather(*(self._read(f"{TOPICS}/{name}") for name in some))
            for name, node in zip(some, nodes, strict=True):
                if node is not None:
                    topics[name] = _unless_same(topic_from(name, node.data), image.topics.get(name))
        image = await self._with_former_documents(image.with_only_topics(topics))
        for documents in _in_turns(await self._stored_documents(), _READS_AT_ONCE):
            nodes = await asyncio.gather(*(self._read(document.path) for document in documents))
            for document, node in zip(documents, nodes, strict=True):
                if node is not None and not self._is_superseded(document):
                    image = document.load(image, node)
        self.is_uncertain = False
        return image

    async def _with_former_documents(self, image: ClusterImage) -> ClusterImage:
        """Returns the image with documents that an earlier commit stored whole, and that are not stored in parts yet."""
        self._former.clear()
        for parted in PARTED_DOCUMENTS:
            node = await self._read(parted.path)
            if node is None or not node.data:
                continue
            image = parted.load_former(image, node)
            self._former.add(parted.path)
        return image

    def _is_superseded(self, part: AnyDocument) -> bool:
        """Tells whether the one document of an earlier commit still counts in place of this part."""
        return any(part.path.startswith(f"{path}/") for path in self._former)

    def is_former(self, document: Stored[Any]) -> bool:
        """Tells whether a document is stored as earlier commits stored it: all of its parts must be
        written."""
        return document.path in self._former

    def emptied(self, document: AnyPartedDocument) -> Operation:
        """Empties the one document of an earlier commit, whose parts are stored: nothing of it comes back, and what is deleted
        later is not found in it."""
        return self._write_of(document.path, b"")

    async def _stored_documents(self) -> list[AnyDocument]:
        """Returns the documents that may be in the registry. Those that are parts of something are listed by their parent,
        which has few of them in most clusters."""
        by_parent: dict[str, list[AnyDocument]] = {}
        for document in DOCUMENTS:
            by_parent.setdefault(document.path.rpartition("/")[0], []).append(document)
        stored: list[AnyDocument] = []
        for parent, documents in by_parent.items():
            if len(documents) > PARTS // 2:
                names = set(await self._registry.children(parent))
                documents = [known for known in documents if known.path.rpartition("/")[2] in names]
            stored += documents
        return stored

    async def registered(self) -> dict[BrokerId, tuple[Registration, int]]:
        """Returns registered brokers, with their epochs."""
        try:
            return await registered(self._registry)
        except SessionExpired as error:
            raise self._over() from error
        except RegistryError as error:
            raise _unwritable(error) from error

    async def registered_before(self, live: Collection[BrokerId]) -> dict[BrokerId, Registration]:
        """Returns the cluster's other brokers, which are down."""
        try:
            return await registered_before(self._registry, live)
        except SessionExpired as error:
            raise self._over() from error
        except RegistryError as error:
            raise _unwritable(error) from error

    async def _read(self, path: str) -> Node | None:
        node = await self._registry.get(path)
        if node is not None:
            self._versions[path] = node.version
        return node

    async def confirm_term(self) -> None:
        """Raises NOT_CONTROLLER when the term is over, KAFKA_STORAGE_ERROR when the registry cannot be read."""
        try:
            await self._registry.sync()
            await self._check_office()
        except SessionExpired as error:
            raise self._over() from error
        except RegistryError as error:
            raise _unwritable(error) from error

    # -- what to write

    def topic(self, topic: TopicImage) -> Operation:
        """Writes a topic, whether or not it exists."""
        return self._write_of(f"{TOPICS}/{topic.name}", topic_data(topic))

    def without_topic(self, name: str) -> Operation:
        path = f"{TOPICS}/{name}"
        return Delete(path=path, version=self._versions[path])

    def document(self, document: AnyDocument, data: bytes) -> Operation:
        """Writes a document, encoded already."""
        return self._write_of(document.path, data)

    def _write_of(self, path: str, data: bytes) -> Operation:
        version = self._versions.get(path)
        if version is None:
            return Create(path=path, data=data)
        return Put(path=path, data=data, version=version)

    # -- writing

    async def commit(self, operations: Sequence[Operation], *, may_be_late: bool = False) -> None:
        """Commits all or nothing, durably. `may_be_late`: others change the same nodes, and a conflict with them is no fault.

        NOT_CONTROLLER when this controller's time is over, KAFKA_STORAGE_ERROR when the registry cannot write
        it now (the commit may have succeeded then).
        """
        if self.is_deposed:
            raise _not_controller()
        assert self._term is not None, "who holds no office only reads"
        try:
            await self._registry.commit([self._term.check, *operations])
        except RegistryConflict as error:
            raise await self._conflict(error, is_fault=not may_be_late) from error
        except SessionExpired as error:
            raise self._over() from error
        except RegistryError as error:
            self.is_uncertain = True
            _log.error("change_not_written", reason=error)
            raise _unwritable(error) from error
        self._remember(operations)

    async def allocate_producer_ids(self, count: int) -> int:
        """Returns the first of `count` producer ids that no one was given before."""
        try:
            node = await self._read(PRODUCER_IDS)
        except RegistryError as error:
            raise _unwritable(error) from error
        first = int(node.data) if node else 0
        if first > 2**63 - 1 - count:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids were handed out")
        await self.commit([self._write_of(PRODUCER_IDS, str(first + count).encode())])
        return first

    async def unregister(self, broker: BrokerId, epoch: int) -> bool:
        """Removes the registration of this incarnation; False when it does not exist any more."""
        for is_last in (False, True):
            try:
                fenced = await removal(self._registry, broker)
            except RegistryError as error:
                raise _unwritable(error) from error
            if fenced is None or fenced.epoch != epoch:
                return False
            try:
                await self.commit(fenced.operations, may_be_late=True)  # its session may end at any time
            except KafkaError:
                if is_last or self.is_deposed:
                    raise
            else:
                return True
        return False

    async def forget_broker(self, broker: BrokerId) -> bool:
        """Removes a broker that is down from the cluster; returns False when it is not in it. Raises INVALID_REQUEST while
        it runs."""
        try:
            operations = await unregistration(self._registry, broker)
        except SessionExpired as error:
            raise self._over() from error
        except RegistryError as error:
            raise _unwritable(error) from error
        if operations is None:
            return False
        await self.commit(operations)
        return True

    def depose(self) -> None:
        """Stops writing: another broker is the controller."""
        if not self.is_deposed:
            self.is_deposed = True
            self._on_deposed()

    def _remember(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            match operation:
                case Create(path=path):
                    self._versions[path] = 0
                case Put(path=path, version=version):
                    self._versions[path] = version + 1
                    self._former.discard(path)
                case Delete(path=path):
                    self._versions.pop(path, None)

    async def _conflict(self, error: RegistryConflict, *, is_fault: bool) -> KafkaError:
        """Handles a conflict: the term is over, or another client wrote the controller's nodes, which are then read again."""
        self.is_uncertain |= is_fault
        try:
            await self._registry.sync()
            await self._check_office()
        except KafkaError as refusal:
            return refusal.as_outcome()
        except RegistryError as unreadable:
            return _unwritable(unreadable)
        if is_fault:
            _log.error("change_not_written", reason=error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the registry was changed by someone else: {error}")

    async def _check_office(self) -> None:
        if self._term is None:
            return
        try:
            node = await self._registry.get(self._term.check.path)
        except SessionExpired as error:
            raise self._over() from error
        if node is None or node.version != self._term.check.version:
            raise self._over()

    def _over(self) -> KafkaError:
        self.depose()
        return _not_controller()


def in_commits(operations: Iterable[tuple[T, Operation]]) -> Iterator[list[tuple[T, Operation]]]:
    """Yields operations, each with its subject, in portions that a registry takes as one commit."""
    portion: list[tuple[T, Operation]] = []
    weight_bytes = 0
    for belongs, operation in operations:
        data: bytes = getattr(operation, "data", b"")
        if portion and (len(portion) >= _OPERATIONS_MAX or weight_bytes + len(data) > _BYTES_MAX):
            yield portion
            portion, weight_bytes = [], 0
        portion.append((belongs, operation))
        weight_bytes += len(data)
    if portion:
        yield portion


def _in_turns(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), count):
        yield items[start : start + count]


def _unless_same(topic: TopicImage, present: TopicImage | None) -> TopicImage:
    return present if present is not None and present == topic else topic


def _unwritable(error: RegistryError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
