"""The reset of a pipeline (an application reset): it gets a new checkpoint, and its sinks forget their decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from odradek.client import Admin
from odradek.model.errors import KafkaError, OdradekError
from odradek.pipelines.carrying import state_topics
from odradek.pipelines.document import Desired, PipelineDocument
from odradek.pipelines.outline import ProgramKind, ProgramOutline
from odradek.pipelines.status import Phase, PipelineStatus
from odradek.pipelines.store import PipelineStore, no_such_pipeline
from odradek.spark.exactly_once.driver import SinkDriver
from odradek.spark.options.sink_ids import group_of

_NEVER_S: Final = float("inf")
_AT_REST: Final = frozenset({Phase.STOPPED, Phase.FAILED})
_ALL: Final = -1


class PipelineRunningError(OdradekError):
    """The pipeline must be stopped first."""


def check_stopped(document: PipelineDocument, status: PipelineStatus | None) -> None:
    """Raises PipelineRunningError unless the pipeline's desired state is stopped, and no process of it is known."""
    if document.desired is not Desired.STOPPED:
        raise PipelineRunningError(
            f"the desired state of pipeline {document.name} is {document.desired.value}: "
            f"`odradek pipeline stop {document.name}` first"
        )
    if status is not None and (status.phase not in _AT_REST or status.revision != document.revision):
        raise PipelineRunningError(
            f"pipeline {document.name} is still {status.phase.value}: wait until it is stopped"
        )


def sinks_of(name: str, suffix: str, outline: ProgramOutline) -> list[str]:
    """Returns the ids of a program's exactly-once sinks, unless it gives them itself."""
    if outline.kind is ProgramKind.STREAMS:
        return [f"{outline.app}.{output.name}" for output in outline.outputs]
    return [f"{name}.{output.name}{suffix}" for output in outline.outputs]


def reset(
    store: PipelineStore, name: str, *, emptying_outputs: bool, by: str, now_ms: int
) -> tuple[PipelineDocument, list[str]]:
    """Forgets what a stopped pipeline has read, its state and its sinks' decisions. Gives its document, and what was emptied.

    PipelineRunningError when it is not stopped. `emptying_outputs`: delete the records of its output topics, too.
    """
    document, status = store.document(name), store.statuses().get(name)
    check_stopped(document, status)
    if document.candidate is not None:
        raise PipelineRunningError(
            f"pipeline {name} has a version that is being rebuilt: swap to it, or abandon it, first"
        )
    outline = None if status is None else status.outline
    emptied: list[str] = []
    if outline is not None:
        if emptying_outputs:
            emptied = sorted({topic for output in outline.outputs for topic in output.topics})
            _empty(store.admin, emptied)
        _delete_changelogs(store.admin, outline)
        _forget_decisions(store.admin, sinks_of(name, document.current.suffix, outline))
    number = document.next_number
    version = replace(
        document.current, number=number, checkpoint=document.next_checkpoint, made_ms=now_ms, way="reset"
    )

    def decide(before: PipelineDocument | None) -> PipelineDocument:
        if before is None:
            raise no_such_pipeline(name, [])
        return before.changed(now_ms, by, f"reset: version {number}", versions=(*before.versions, version))

    changed = store.change(name, decide, expected_revision=document.revision)
    assert changed is not None
    return changed, emptied


def _delete_changelogs(admin: Admin, outline: ProgramOutline) -> None:
    """Deletes the changelogs of sinks: state without a decision has no known position, and is refused."""
    present = set(admin.list_topics())
    changelogs = [state.topic for state in state_topics(outline) if state.topic in present]
    if changelogs:
        admin.delete_topics(changelogs)


def _forget_decisions(admin: Admin, sinks: Sequence[str]) -> None:
    present = {group.group_id for group in admin.list_groups()}
    for sink in sinks:
        if group_of(sink) in present:
            SinkDriver(admin, sink, transaction_timeout_s=_NEVER_S).retire()
            admin.delete_groups([group_of(sink)])


def _empty(admin: Admin, topics: Sequence[str]) -> None:
    present = sorted(set(topics) & set(admin.list_topics(internal=True)))
    partitions = [
        tp for description in admin.describe_topics(present).values() for tp in description.topic_partitions
    ]
    try:
        admin.delete_records(dict.fromkeys(partitions, _ALL))
    except KafkaError as error:
        raise KafkaError(
            error.code,
            f"the outputs could not be emptied ({error.message}): compacted topics keep their records. Nothing was reset:"
            " try without --empty-outputs",
        ) from None
