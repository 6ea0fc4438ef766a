"""The modes of an upgrade from a version of a pipeline to another program, and why a mode is impossible. Decisions only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from odradek.pipelines.outline import OutputOutline, ProgramKind, ProgramOutline, StateOutline


class UpgradeMode(StrEnum):
    """The ways in which the next version gets state and position."""

    KEEP = "keep"
    """The same checkpoint."""
    CARRY = "carry"
    """A new checkpoint: state from the changelog topics, position from the sinks' decisions."""
    REBUILD = "rebuild"
    """It reads everything into topics of its own, next to the version before, and replaces it when its lag is small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeVerdict:
    """The verdict on a mode: whether it is possible."""

    mode: UpgradeMode
    reasons: tuple[str, ...]
    """Why it is not; none when it is."""
    notes: tuple[str, ...]
    """Notes for people who choose the mode."""

    @property
    def is_possible(self) -> bool:
        return not self.reasons


def verdicts(
    before: ProgramOutline | None, after: ProgramOutline, *, delivery: str, rebuilding: int | None
) -> tuple[ModeVerdict, ...]:
    """Returns a verdict on each mode. `before` is what ran last, None where unknown; `rebuilding` the version being rebuilt."""
    ways = {UpgradeMode.KEEP: _keep, UpgradeMode.CARRY: _carry, UpgradeMode.REBUILD: _rebuild}
    return tuple(_verdict(mode, way(before, after, delivery), rebuilding) for mode, way in ways.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reason:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    text: str


_Remark = _Reason | _Note


def _verdict(mode: UpgradeMode, remarks: Iterator[_Remark], rebuilding: int | None) -> ModeVerdict:
    lines = list(remarks)
    reasons = [remark.text for remark in lines if isinstance(remark, _Reason)]
    if rebuilding is not None:
        reasons.append(f"version {rebuilding} is being rebuilt: wait, or give it up (upgrade --abandon)")
    notes = tuple(remark.text for remark in lines if isinstance(remark, _Note))
    return ModeVerdict(mode=mode, reasons=tuple(reasons), notes=notes)


def are_versions(before: ProgramOutline, after: ProgramOutline) -> bool:
    """Tells whether both are programs of odradek.streams, with sinks and state under the same names."""
    return before.kind is after.kind is ProgramKind.STREAMS and before.app == after.app


def _same_program(before: ProgramOutline | None, after: ProgramOutline) -> Iterator[_Remark]:
    """Yields the reasons why a program cannot continue another's state and position."""
    if before is None:
        yield _Reason(text="no supervisor has reported what runs: start the pipeline once")
    elif before.kind is not after.kind:
        yield _Reason(text=f"it was a {before.kind} program, and is a {after.kind} one")
    elif before.app != after.app:
        yield _Reason(
            text=f"the app was called {before.app!r}, and is {after.app!r}: its sinks and state go by that name"
        )


def _keep(before: ProgramOutline | None, after: ProgramOutline, _: str) -> Iterator[_Remark]:
    yield from _same_program(before, after)
    if before is None or before.kind is not after.kind:
        return
    if after.kind is ProgramKind.PYSPARK:
        yield _Note(text="Spark compares the plans when it starts")
        yield _Note(
            text="sources that come, go or move need names in both (readStream.name), see docs/pipelines.md"
        )
        return
    if before.partitions != after.partitions:
        yield _Reason(
            text=f"partitions was {before.partitions}, and is {after.partitions}: keys would be in other tasks"
        )
    for output, same in _outputs(before, after):
        yield from _same_states(output, same)
        moved = [source.name for source in output.sources] != [source.name for source in same.sources]
        if moved and not (output.sources_named and same.sources_named):
            yield _Reason(
                text=f"{output.name}: its sources come, go or move, and have no names in its checkpoint"
            )
        yield from _source_notes(output, same)
        yield from _topic_note(output, same)
    yield from _outputs_that_change(before, after)


def _same_states(output: OutputOutline, same: OutputOutline) -> Iterator[_Remark]:
    """Compares states. Spark assigns state by an operator's place, so an output must have the same states in the same order."""
    known = {state.name: state for state in output.states}
    for state in same.states:
        if state.name not in known:
            yield _Reason(text=f"{output.name}: the operator {state.name!r} with state is new")
        elif (change := _shape_change(known[state.name], state)) is not None:
            yield _Reason(text=f"{output.name}: {change}")
    names = [state.name for state in same.states]
    for state in output.states:
        if state.name not in names:
            yield _Reason(text=f"{output.name}: the operator {state.name!r} with state was removed")
    if sorted(names) == sorted(known) and names != list(known):
        yield _Reason(text=f"{output.name}: its operators with state come in another order")


def _shape_change(before: StateOutline, after: StateOutline) -> str | None:
    if before.kind != after.kind:
        return f"the operator {before.name!r} was {before.kind}, and is {after.kind}"
    if before.shape != after.shape:
        return f"the state of {before.name!r} changes: it was ({before.shape}), and is ({after.shape})"
    return None


def _carry(before: ProgramOutline | None, after: ProgramOutline, delivery: str) -> Iterator[_Remark]:
    yield from _same_program(before, after)
    if delivery != "exactly_once":
        yield _Reason(
            text=f"delivery is {delivery}: only exactly_once keeps the position and the state in the cluster"
        )
    if after.kind is ProgramKind.PYSPARK:
        yield _Reason(text="only programs of odradek.streams write their state to changelog topics")
        return
    if before is None or before.kind is not after.kind:
        return
    if before.partitions != after.partitions:
        yield _Reason(
            text=f"partitions was {before.partitions}, and is {after.partitions}: keys are in other tasks, and so in other"
            " partitions of the changelog topics"
        )
    for output, same in _outputs(before, after):
        read_before = {source.topic for source in output.sources}
        if read_before.isdisjoint(source.topic for source in same.sources):
            yield _Reason(
                text=f"{output.name} reads other topics only: its decisions do not contain where to begin"
            )
        yield from _source_notes(output, same)
        if not output.is_topic or not same.is_topic:
            yield _Reason(text=f"{output.name} calls a function: no decision contains how far it has come")
        known = {state.name: state for state in output.states}
        for state in same.states:
            if state.name not in known:
                yield _Note(
                    text=f"{output.name}: the operator {state.name!r} with state is new, and begins empty"
                )
            elif (change := _shape_change(known[state.name], state)) is not None:
                yield _Reason(text=f"{output.name}: {change}")
        states = {state.name for state in same.states}
        for name in known.keys() - states:
            yield _Note(text=f"{output.name}: the state of {name!r} is not used any more")
        yield from _topic_note(output, same)
    yield from _outputs_that_change(before, after)


def _rebuild(before: ProgramOutline | None, after: ProgramOutline, _: str) -> Iterator[_Remark]:
    if before is None:
        yield _Note(text="no supervisor has reported what runs, so no one can tell what changes")
    if after.kind is ProgramKind.PYSPARK:
        yield _Note(text='only topics are kept apart: all writers must be of format("odradek")')
        return
    for output in after.outputs:
        if not output.is_topic:
            yield _Reason(text=f"{output.name} calls a function: it would be called for all records again")
        elif output.topic is None:
            yield _Note(
                text=f"{output.name}: an expression names its topics, so they are made by the broker's defaults"
            )


def _outputs(before: ProgramOutline, after: ProgramOutline) -> Iterator[tuple[OutputOutline, OutputOutline]]:
    """Yields the outputs that both programs have, paired by name."""
    new = {output.name: output for output in after.outputs}
    for output in before.outputs:
        if output.name in new:
            yield output, new[output.name]


def _outputs_that_change(before: ProgramOutline, after: ProgramOutline) -> Iterator[_Note]:
    old_names = {output.name for output in before.outputs}
    new_names = {output.name for output in after.outputs}
    for name in sorted(new_names - old_names):
        yield _Note(text=f"{name} is new: it reads its inputs from their beginning")
    for name in sorted(old_names - new_names):
        yield _Note(text=f"{name} was removed: nothing is written there any more")


def _source_notes(output: OutputOutline, same: OutputOutline) -> Iterator[_Note]:
    before = {source.topic for source in output.sources}
    after = {source.topic for source in same.sources}
    for topic in sorted(after - before):
        yield _Note(
            text=f"{output.name}: {topic} is read from its first record, or from where an earlier version stopped"
        )
    for topic in sorted(before - after):
        yield _Note(text=f"{output.name}: {topic} is not read any more; its rows stay in the state")


def _topic_note(output: OutputOutline, same: OutputOutline) -> Iterator[_Note]:
    if output.topic != same.topic:
        yield _Note(
            text=f"{output.name} continues in topic {same.topic}; what it wrote stays in {output.topic}"
        )
    for topic in same.topics:
        if topic not in output.topics and topic != same.topic:
            yield _Note(text=f"{output.name}: {topic} is new: it gets what comes from now on")
    for topic in output.topics:
        if topic not in same.topics and topic != output.topic:
            yield _Note(text=f"{output.name}: nothing is written to {topic} any more")
