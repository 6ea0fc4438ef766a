"""An upgrade of a pipeline: what is looked up for it, what it writes. Which modes there are, `upgrade.py` decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from odradek import client
from odradek.client import Admin, ConfigResource, NewTopic
from odradek.client.admin.types import ConfigSource, ResourceType
from odradek.model.errors import OdradekError
from odradek.pipelines.carrying import make_new_changelogs, with_changelogs
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.outline import ProgramOutline
from odradek.pipelines.store import PipelineConflict, PipelineStore, no_such_pipeline
from odradek.pipelines.upgrade import ModeVerdict, UpgradeMode, are_versions, verdicts

_NAMED_MAX: Final = 3


class UpgradeRefused(OdradekError):
    """The mode is not possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextProgram:
    """The next program of a pipeline."""

    file: str
    args: tuple[str, ...]
    outline: ProgramOutline
    continued: ProgramOutline
    """The outline with the suffix of the current version, for a mode that continues under its names."""
    sha256: str = ""
    """The digest of the file's bytes, as they were loaded; empty where nothing depends on it."""


def preview(
    store: PipelineStore, document: PipelineDocument, program: NextProgram
) -> tuple[ModeVerdict, ...]:
    """Returns a verdict on each mode. Changes nothing."""
    before = _before(store, document)
    rebuilding = None if document.candidate is None else document.candidate.number
    judged = verdicts(before, program.continued, delivery=document.delivery, rebuilding=rebuilding)

    def completed(verdict: ModeVerdict) -> ModeVerdict:
        if verdict.mode is UpgradeMode.REBUILD:
            return _with_topics(store.admin, verdict, program.outline, _suffix(document.next_number))
        if (
            verdict.mode is UpgradeMode.CARRY
            and before is not None
            and are_versions(before, program.continued)
        ):
            return with_changelogs(store.admin, verdict, before, program.continued)
        return verdict

    return tuple(map(completed, judged))


def _before(store: PipelineStore, document: PipelineDocument) -> ProgramOutline | None:
    """Returns the outline that ran last; None where no supervisor has reported it."""
    status = store.statuses().get(document.name)
    return status.outline if status is not None and status.version == document.current.number else None


def _with_topics(admin: Admin, verdict: ModeVerdict, outline: ProgramOutline, suffix: str) -> ModeVerdict:
    present = set(admin.list_topics(internal=True))
    blocked, empty = _outputs_present(admin, outline, suffix, present)
    missing = [topic for topic in outline.topics if topic not in present]
    inputs = [topic for topic in outline.topics if topic in present]
    gone = inputs_gone(admin, inputs)
    reasons, notes = list(verdict.reasons), list(verdict.notes)
    if blocked:
        reasons.append(f"topic {', '.join(blocked)} is there already: delete it first")
    if empty:
        notes.append(f"topic {', '.join(empty)} is there already, and empty: it is used as it is")
    if missing:
        notes.append(f"topic {', '.join(missing)} is not there")
    if inputs:
        notes.append(f"it reads {records_held(admin, inputs)} records again, of {', '.join(sorted(inputs))}")
    if gone:
        notes.append(f"inputs do not hold everything any more: {gone}; what was before is not read again")
    return replace(verdict, reasons=tuple(reasons), notes=tuple(notes))


def _outputs_present(
    admin: Admin, outline: ProgramOutline, suffix: str, present: Collection[str]
) -> tuple[list[str], list[str]]:
    """Returns the output topics that are there already: those that an upgrade must not use, and those that it may.

    An upgrade that someone overtakes, or that dies, leaves the topics that it has made. Nothing is written to them, and they
    have as many partitions as those without the suffix, so the next attempt uses them.
    """
    models = _outputs(outline, suffix)
    there = sorted(models.keys() & set(present))
    if not there:
        return [], []
    descriptions = admin.describe_topics(
        {*there, *(models[topic] for topic in there if models[topic] in present)}
    )
    ends = admin.list_offsets(
        {tp: client.LATEST for topic in there for tp in descriptions[topic].topic_partitions}
    )
    written = {tp.topic for tp, end in ends.items() if end.offset > 0}

    def is_usable(topic: str) -> bool:
        model = descriptions.get(models[topic])
        is_alike = model is None or len(model.partitions) == len(descriptions[topic].partitions)
        return is_alike and topic not in written

    return [topic for topic in there if not is_usable(topic)], [topic for topic in there if is_usable(topic)]


def inputs_gone(admin: Admin, topics: Sequence[str]) -> str:
    """Returns the partitions that do not begin at 0, in words; empty when all do."""
    partitions = [
        tp for description in admin.describe_topics(topics).values() for tp in description.topic_partitions
    ]
    if not partitions:
        return ""
    begins = admin.list_offsets(dict.fromkeys(partitions, client.EARLIEST))
    late = [
        f"{tp} begins at offset {begin.offset}" for tp, begin in sorted(begins.items()) if begin.offset > 0
    ]
    more = f" and {len(late) - _NAMED_MAX} more" if len(late) > _NAMED_MAX else ""
    return ", ".join(late[:_NAMED_MAX]) + more


def records_held(admin: Admin, topics: Sequence[str]) -> int:
    """Returns the offsets between the beginnings and the ends of topics: about the records that they hold."""
    partitions = [
        tp for description in admin.describe_topics(topics).values() for tp in description.topic_partitions
    ]
    begins = admin.list_offsets(dict.fromkeys(partitions, client.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, client.LATEST))
    return sum(max(0, ends[tp].offset - begins[tp].offset) for tp in partitions)


def upgrade(
    store: PipelineStore,
    name: str,
    program: NextProgram,
    mode: UpgradeMode,
    *,
    by: str,
    now_ms: int,
    swap_lag: int | None = None,
    expected_revision: int | None = None,
) -> PipelineDocument:
    """Makes the next version. UpgradeRefused, with the reasons, when the mode is not possible; PipelineConflict when someone
    changes the pipeline meanwhile, or has since `expected_revision`.
    """
    document = store.document(name)
    if expected_revision is not None and document.revision != expected_revision:
        raise PipelineConflict(f"pipeline {name} has changed meanwhile: look at it again")
    verdict = next(verdict for verdict in preview(store, document, program) if verdict.mode is mode)
    if not verdict.is_possible:
        raise UpgradeRefused(f"pipeline {name} cannot be upgraded by {mode}: {'; '.join(verdict.reasons)}")
    number = document.next_number
    version = PipelineVersion(
        number=number,
        program=program.file,
        args=program.args,
        checkpoint=document.current.checkpoint if mode is UpgradeMode.KEEP else document.next_checkpoint,
        made_ms=now_ms,
        suffix=_suffix(number) if mode is UpgradeMode.REBUILD else document.current.suffix,
        way=mode.value,
    )
    if mode is UpgradeMode.REBUILD:
        _make_topics(store.admin, program.outline, version.suffix)
    before = _before(store, document)
    if mode is UpgradeMode.CARRY and before is not None:
        make_new_changelogs(store.admin, before, program.continued)

    def decide(before: PipelineDocument | None) -> PipelineDocument:
        if before is None:
            raise no_such_pipeline(name, [])
        what = f"upgrade to version {number} by {mode}: {program.file}"
        if mode is UpgradeMode.REBUILD:
            lag = before.swap_lag if swap_lag is None else swap_lag
            return before.changed(now_ms, by, what, candidate=version, swap_lag=lag)
        return before.changed(now_ms, by, what, versions=(*before.versions, version))

    changed = store.change(name, decide, expected_revision=document.revision)
    assert changed is not None
    return changed


def _suffix(number: int) -> str:
    return f".v{number}"


def _outputs(outline: ProgramOutline, suffix: str) -> dict[str, str]:
    """Returns the output topics with a suffix, and the topic without it of each."""
    return {f"{topic}{suffix}": topic for output in outline.outputs for topic in output.topics}


def _make_topics(admin: Admin, outline: ProgramOutline, suffix: str) -> None:
    """Makes the topics of a new suffix that are missing like those without it: as many partitions and replicas, the same
    settings.
    """
    present = set(admin.list_topics(internal=True))
    there = sorted(
        topic for name, topic in _outputs(outline, suffix).items() if topic in present and name not in present
    )
    if not there:
        return
    descriptions = admin.describe_topics(there)
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in there}
    entries = admin.describe_configs(resources.values())
    admin.create_topics(
        NewTopic(
            f"{topic}{suffix}",
            len(descriptions[topic].partitions),
            len(descriptions[topic].partitions[0].replicas),
            configs={
                entry.name: entry.value
                for entry in entries[resources[topic]].values()
                if entry.source is ConfigSource.TOPIC and entry.value is not None
            },
        )
        for topic in there
    )


def swap(store: PipelineStore, name: str, *, by: str, now_ms: int) -> PipelineDocument:
    """Lets the candidate take its place now, whatever its lag. UpgradeRefused when there is none."""

    def decide(before: PipelineDocument | None) -> PipelineDocument:
        return _with_candidate(before, name).swapped(now_ms, by)

    changed = store.change(name, decide)
    assert changed is not None
    return changed


def abandon(store: PipelineStore, name: str, *, by: str, now_ms: int) -> PipelineDocument:
    """Gives the candidate up. Its topics and its checkpoint stay. UpgradeRefused when there is none."""

    def decide(before: PipelineDocument | None) -> PipelineDocument:
        document = _with_candidate(before, name)
        assert document.candidate is not None
        what = f"give up version {document.candidate.number}"
        return document.changed(now_ms, by, what, candidate=None)

    changed = store.change(name, decide)
    assert changed is not None
    return changed


def _with_candidate(document: PipelineDocument | None, name: str) -> PipelineDocument:
    if document is None:
        raise no_such_pipeline(name, [])
    if document.candidate is None:
        raise UpgradeRefused(f"pipeline {name} has no version that is being rebuilt")
    return document


def words(verdicts: Iterable[ModeVerdict]) -> list[tuple[str, str, str]]:
    """Rows for people: mode, possible, why not and what to know."""
    return [
        (
            verdict.mode.value,
            "yes" if verdict.is_possible else "no",
            "; ".join((*verdict.reasons, *verdict.notes)) or "-",
        )
        for verdict in verdicts
    ]
