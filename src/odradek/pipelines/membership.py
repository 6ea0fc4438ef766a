"""Elects the supervisor: the member of a group that has the one partition of `__odradek_pipelines`.

A group lends a partition to one member at a time, and takes it back from one that keeps silent. So a supervisor that dies is
replaced by one that waits, and the documents come with the membership: they are the records of that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType
from typing import Final, Self

from odradek import client
from odradek.client import Admin, Consumer
from odradek.client.groups.values import Partitions, RebalanceListener
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PIPELINES_TOPIC, PipelineDocument
from odradek.pipelines.status import PipelineStatus
from odradek.pipelines.status_writer import StatusWriter
from odradek.pipelines.store import PipelineStore
from odradek.pipelines.tables import make_topics, partition_of, read_documents, read_statuses
from odradek.runtime.ports import Clock
from odradek.telemetry import events

SUPERVISORS_GROUP: Final = "__odradek_pipelines"
SESSION_MS: Final = 10_000
PATIENCE_MS: Final = 10_000
"""The time-out of a request, and the longest time that the end of a supervisor may wait for one."""
_READ_COMMITTED: Final = 1
_REFRESH_EVERY_S: Final = 30.0
"""The interval at which new partitions of inputs are looked up."""
_log = events.get("pipelines")

Documents = Mapping[str, PipelineDocument | None]


class SupervisedTopics(RebalanceListener):
    """The brokers as a supervisor sees them. Used from one thread."""

    def __init__(
        self,
        servers: str,
        clock: Clock,
        *,
        settings: ClientSettings,
        on_lost: Callable[[], None],
        session_ms: int = SESSION_MS,
    ) -> None:
        """`settings` are for all clients; their `client_id` is how others see who supervises. `on_lost` is called when someone
        else takes over: when it returns, they may begin.
        """
        self._servers = servers
        self._clock = clock
        self._settings = dict(settings)
        self._on_lost = on_lost
        self._has_it = False
        self._is_fresh = False
        self._admin = Admin(servers, default_api_timeout_ms=PATIENCE_MS, **self._settings)
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="odradek-pipelines")
        self._looking: Future[dict[TopicPartition, int]] | None = None
        self._partitions: dict[str, tuple[TopicPartition, ...]] = {}
        self._partitions_at = float("-inf")
        try:
            make_topics(self._admin)
        except BaseException:
            self._admin.close()
            raise
        self._statuses = StatusWriter(servers, clock, **self._settings)
        self._consumer = Consumer(
            servers,
            group_id=SUPERVISORS_GROUP,
            # Eager assignors take the partition from its owner whenever a member joins.
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=session_ms,
            default_api_timeout_ms=PATIENCE_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            **self._settings,
        )
        self._consumer.subscribe([PIPELINES_TOPIC], listener=self)

    def close(self) -> None:
        """Leaves the group: a waiting member takes over. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._consumer.close()
        self._statuses.close()
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the group

    def partitions_assigned(self, partitions: Partitions) -> None:
        if partitions:
            self._has_it = self._is_fresh = True

    def partitions_revoked(self, partitions: Partitions) -> None:
        if partitions and self._has_it:
            self._has_it = self._is_fresh = False
            self._on_lost()

    @property
    def supervises(self) -> bool:
        return self._has_it

    def owner(self) -> str | None:
        """Returns the name of the supervisor; None where there is none."""
        return supervisor_of(self._admin)

    # -- documents

    def wait(self, wait_s: float) -> Documents | None:
        """Waits for documents that change; None when this has just become the supervisor: `everything` is due then."""
        records = self._consumer.poll(wait_s)
        if self._is_fresh:
            self._is_fresh = False
            return None
        changed: dict[str, PipelineDocument | None] = {}
        for record in records:
            name = (record.key or b"").decode("utf-8", "replace")
            try:
                changed[name] = (
                    None if record.value is None else PipelineDocument.from_bytes(name, record.value)
                )
            except KafkaError as error:
                _log.warning("document_unreadable", pipeline=name, reason=str(error))
        return changed

    def everything(self) -> tuple[dict[str, PipelineDocument], dict[str, PipelineStatus]]:
        """Returns all readable documents and statuses. `wait` returns what changes after that."""
        table = read_documents(self._admin, self._clock, self._servers, **self._settings)
        for name, reason in table.unreadable.items():
            _log.warning("document_unreadable", pipeline=name, reason=reason)
        self._consumer.seek(partition_of(PIPELINES_TOPIC), table.end)
        return table.documents, read_statuses(self._admin, self._clock, self._servers, **self._settings)

    # -- what a `Supervisor` needs

    def publish(self, name: str, status: PipelineStatus | None) -> None:
        self._statuses.publish(name, status)

    def unsent(self) -> frozenset[str]:
        return self._statuses.unsent()

    def refresh(self, topics: Sequence[str]) -> None:
        if self._looking is None:
            self._looking = self._threads.submit(self._ends, tuple(topics))

    def found(self) -> Mapping[TopicPartition, int] | None:
        if self._looking is None or not self._looking.done():
            return None
        looking, self._looking = self._looking, None
        try:
            return MappingProxyType(looking.result())
        except OdradekError as error:
            _log.warning("ends_unknown", reason=str(error))
            return None

    def swap(self, name: str, number: int) -> None:
        self._threads.submit(self._swap, name, number)

    def _swap(self, name: str, number: int) -> None:
        """Swaps in the candidate; runs on another thread. A document that has changed meanwhile stays as it is."""

        def decide(document: PipelineDocument | None) -> PipelineDocument | None:
            if document is None or document.candidate is None or document.candidate.number != number:
                return document
            return document.swapped(self._clock.wall_ms(), str(self._settings["client_id"]))

        try:
            with PipelineStore(
                self._servers, clock=self._clock, patience_ms=PATIENCE_MS, **self._settings
            ) as store:
                store.change(name, decide)
        except OdradekError as error:
            _log.warning("swap_not_written", pipeline=name, reason=str(error))

    def _ends(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Returns the ends of all partitions of topics; runs on another thread."""
        now = self._clock.monotonic()
        if now - self._partitions_at >= _REFRESH_EVERY_S or any(
            topic not in self._partitions for topic in topics
        ):
            present = set(self._admin.list_topics(internal=True))
            descriptions = self._admin.describe_topics([topic for topic in topics if topic in present])
            self._partitions = dict.fromkeys(topics, ()) | {
                topic: description.topic_partitions for topic, description in descriptions.items()
            }
            self._partitions_at = now
        wanted = dict.fromkeys((tp for topic in topics for tp in self._partitions[topic]), client.LATEST)
        if not wanted:
            return {}
        offsets = self._admin.list_offsets(wanted, isolation=_READ_COMMITTED)
        return {tp: offset.offset for tp, offset in offsets.items()}


def supervisor_of(admin: Admin) -> str | None:
    """Returns the client id and the host of the group's member that supervises; None where no one does."""
    try:
        description = admin.describe_groups([SUPERVISORS_GROUP])[SUPERVISORS_GROUP]
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    for member in description.members:
        if member.assignment:
            return f"{member.client_id} at {member.client_host.lstrip('/')}"
    return None
