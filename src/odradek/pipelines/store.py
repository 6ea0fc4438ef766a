"""Changes the documents of pipelines by compare-and-set on a topic.

Every writer uses the same transactional id. It fences all writers before it, reads the topic to its end, decides, and
commits. So between what it read and what it wrote no one else has written: a second writer is fenced; it reads and decides
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Self

from odradek.client import Admin, FatalTransactionError, Producer, TransactionError
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.pipelines.document import DESIRED_BY_VERB, PIPELINES_TOPIC, PipelineDocument
from odradek.pipelines.status import STATUS_TOPIC, PipelineStatus
from odradek.pipelines.tables import (
    DocumentTable,
    end_of,
    is_there,
    make_topics,
    partition_of,
    read_documents,
    read_statuses,
)
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.telemetry import events

_log = events.get("pipelines")
WRITER_ID: Final = "odradek-pipelines"
_TRIES: Final = 8
_READABLE_S_MAX: Final = 30.0
"""The longest wait for a committed change to be readable; the change counts even then."""
_READABLE_PAUSE_S: Final = 0.005

Decide = Callable[[PipelineDocument | None], PipelineDocument | None]
"""Returns what the current document (None: there is none) becomes. It may be called more than once."""


class PipelineConflict(OdradekError):
    """Someone else changed the pipeline first."""


class WrongPipelineState(OdradekError):
    """The pipeline is not where the command could do something."""


class PipelineStore:
    """Reads and changes the documents of a cluster's pipelines.

    with PipelineStore("127.0.0.1:9092") as store:
        store.change("totals", lambda document: document.changed(now_ms, "ann", "stop", desired=Desired.STOPPED))
    """

    def __init__(
        self, servers: str, *, clock: Clock | None = None, patience_ms: int = 60_000, **settings: Any
    ) -> None:
        """`settings` are for all clients that are made, such as `client_id`. `patience_ms`: of questions to the cluster."""
        self._servers = servers
        self._settings = settings
        self._clock = clock or SystemClock()
        self.admin: Final = Admin(servers, default_api_timeout_ms=patience_ms, **settings)

    def close(self) -> None:
        """Closes the clients. Idempotent."""
        self.admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def documents(self) -> dict[str, PipelineDocument]:
        """Returns the readable documents by name, ordered; none where no pipeline was ever written."""
        return self.table().documents

    def table(self) -> DocumentTable:
        """Returns the documents, and why others cannot be read."""
        if not is_there(self.admin, PIPELINES_TOPIC):
            return DocumentTable({}, {}, 0)
        return self._table()

    def statuses(self) -> dict[str, PipelineStatus]:
        """Returns the statuses by name, ordered; none where no supervisor ever published one."""
        if not is_there(self.admin, STATUS_TOPIC):
            return {}
        return read_statuses(self.admin, self._clock, self._servers, **self._settings)

    def _table(self) -> DocumentTable:
        """Reads the topic, which must exist. A broker that does not know it yet is asked again."""
        return read_documents(self.admin, self._clock, self._servers, **self._settings)

    def document(self, name: str) -> PipelineDocument:
        """Returns a document. KafkaError RESOURCE_NOT_FOUND, with the names of all pipelines, when there is no such pipeline;
        INVALID_RECORD when its document cannot be read.
        """
        table = self.table()
        document = _readable(table, name)
        if document is None:
            raise no_such_pipeline(name, list(table.documents))
        return document

    def change(
        self, name: str, decide: Decide, *, expected_revision: int | None = None
    ) -> PipelineDocument | None:
        """Writes what `decide` makes of the document, and returns it. Writes nothing when it is unchanged.

        PipelineConflict, with who was first, when the document is not at `expected_revision` (0: there is none), or when
        others keep changing pipelines at this very moment.
        """
        make_topics(self.admin)
        written: list[PipelineDocument | None] = []
        for _ in range(_TRIES):
            try:
                return self._try(name, decide, expected_revision, written)
            except (FatalTransactionError, TransactionError) as error:
                # Someone began after us: what we read may be old. An empty transaction gets INVALID_TXN_STATE.
                problem = str(error)
        raise PipelineConflict(
            f"pipeline {name}: others changed pipelines {_TRIES} times meanwhile{self._last_change(name)}: try again"
            f" ({problem})"
        )

    def set_desired(self, name: str, verb: str, *, by: str, now_ms: int) -> PipelineDocument:
        """Writes the desired state of a verb of `DESIRED_BY_VERB`. Raises WrongPipelineState where it does not apply;
        KafkaError RESOURCE_NOT_FOUND when there is no such pipeline.
        """

        def decide(before: PipelineDocument | None) -> PipelineDocument:
            if before is None:
                raise no_such_pipeline(name, [])
            reason = before.refusal(verb)
            if reason is not None:
                raise WrongPipelineState(f"pipeline {name} {reason}")
            return before.changed(now_ms, by, verb, desired=DESIRED_BY_VERB[verb])

        changed = self.change(name, decide)
        assert changed is not None
        return changed

    def _try(
        self,
        name: str,
        decide: Decide,
        expected_revision: int | None,
        written: list[PipelineDocument | None],
    ) -> PipelineDocument | None:
        """Tries once. `written`: what earlier tries have sent. A commit whose answer was lost may have been made."""
        with Producer(self._servers, transactional_id=WRITER_ID, **self._settings) as producer:
            producer.init_transactions()
            before = _readable(self._table(), name)
            if written and written[-1] == before:
                return before
            revision = 0 if before is None else before.revision
            if expected_revision is not None and revision != expected_revision:
                raise PipelineConflict(
                    f"pipeline {name} is at revision {revision}, not {expected_revision}{_by(before)}: look at it again"
                )
            after = decide(before)
            if after == before:
                return after
            written.append(after)
            partition = partition_of(PIPELINES_TOPIC)
            with producer.transaction():
                delivery = producer.send(
                    partition.topic,
                    None if after is None else after.to_bytes(),
                    key=name.encode(),
                    partition=partition.partition,
                )
            self._wait_until_readable(delivery.result().offset)
            return after

    def _wait_until_readable(self, offset: int) -> None:
        """Waits until readers find the change: a commit is answered before its marker is in the topic, as Kafka does it. The
        change is made, so no error comes from here."""
        deadline = self._clock.monotonic() + _READABLE_S_MAX
        try:
            while end_of(self.admin, PIPELINES_TOPIC) <= offset:
                if self._clock.monotonic() > deadline:
                    _log.warning("change_not_readable_yet", topic=PIPELINES_TOPIC, offset=offset)
                    return
                time.sleep(_READABLE_PAUSE_S)  # noqa: TID251 - no event loop runs this
        except OdradekError as error:
            _log.warning("change_not_seen", topic=PIPELINES_TOPIC, offset=offset, reason=str(error))

    def _last_change(self, name: str) -> str:
        return _by(self.documents().get(name))


def _readable(table: DocumentTable, name: str) -> PipelineDocument | None:
    """Returns the document; None where there is none. KafkaError INVALID_RECORD when it cannot be read."""
    if name in table.unreadable:
        raise KafkaError(ErrorCode.INVALID_RECORD, table.unreadable[name])
    return table.documents.get(name)


def _by(document: PipelineDocument | None) -> str:
    if document is None or not document.history:
        return ""
    change = document.history[-1]
    return f" (the last change: {change.what}, by {change.by})"


def no_such_pipeline(name: str, known: list[str]) -> KafkaError:
    names = f"there are {', '.join(known)}" if known else "there are none"
    return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no pipeline {name!r}: {names}")
