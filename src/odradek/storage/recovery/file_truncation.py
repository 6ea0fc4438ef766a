"""Removes the end of a log, or all of it, so that a crash at any point leaves the log as before or as planned.

A log is truncated in memory first, on the loop, without waiting for a disk; appends are refused until the
files have followed. The files follow in a `Truncation`, on any thread, as the first part of the next flush. A
truncation that is decided before the files have followed an earlier one has it as its predecessor: its job
carries out both, one after the other.

    1  `truncation` is put into the directory, durably: from now on it is decided, and an opening carries it out
    2  segments that go are renamed, the last one that stays is cut; epochs, producer snapshots and transaction indexes follow
    3  `truncation` is replaced, durably, by one that says it is done

Before 1 a crash leaves the log as it was. After it the opening does 2 again, which may be done any number of times.

The file stays until the checkpoints of the data directory were written once more. They may speak of offsets that were
durable before, and are no more: until then `recovery_point` and `start_offset` of this file count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from odradek.model.java_numbers import whole_number
from odradek.runtime.ports import Disk
from odradek.storage.files import checkpoints, naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.files.leader_epochs import EpochHistory
from odradek.storage.files.lifetime import DISK_FULL, NO_DESCRIPTORS, LogLifetime
from odradek.storage.producers.producer_state import Producers
from odradek.storage.recovery.replay import newest_snapshot, replay_file
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.transaction_index import ENTRY, decode_aborted
from odradek.telemetry import events

log = events.get("storage")

_VERSION: Final = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationPlan:
    """The files to cut and to remove: the contents of the file `truncation`."""

    base_offset: int
    """The base offset of the segment that is the last one from now on."""
    position: int
    """How many bytes of this segment stay."""
    end_offset: int
    """The log's end offset after the truncation."""
    start_offset: int
    recovery_point: int
    """Everything below it is durable, whatever a checkpoint says."""
    high_watermark_max: int
    """A checkpoint's high watermark above this offset is older than the truncation."""
    starts_empty: bool
    """Nothing is kept: the segment is a new one."""
    sweeps: bool
    """A compaction that had begun to replace segments is undone."""
    is_done: bool = False

    def format(self) -> bytes:
        values = {_in_file(field.name): str(int(getattr(self, field.name))) for field in fields(self)}
        return checkpoints.sealed({"version": _VERSION, **values})

    @classmethod
    def parse(cls, data: bytes) -> TruncationPlan:
        """Raises BadCheckpointError for bytes that are damaged."""
        values = checkpoints.unsealed(data)
        try:
            if values["version"] != _VERSION:
                raise BadCheckpointError(f"version {values['version']} is unknown")
            texts = {field.name: values[_in_file(field.name)] for field in fields(cls)}
            numbers = {name: whole_number(text) for name, text in texts.items()}
        except (KeyError, ValueError) as error:
            raise BadCheckpointError(f"it does not follow its format: {error}") from None
        flags = {name: bool(numbers.pop(name)) for name in ("starts_empty", "sweeps", "is_done")}
        return cls(**numbers, **flags)  # type: ignore[arg-type]


def _in_file(field_name: str) -> str:
    """Returns the name of a field in the file `truncation`, whose format does not change."""
    return "is_anew" if field_name == "starts_empty" else field_name


def read_plan(disk: Disk, directory: str) -> TruncationPlan | None:
    """Returns None without a file; BadCheckpointError for a damaged one."""
    path = naming.join(directory, naming.TRUNCATION)
    return TruncationPlan.parse(disk.read(path)) if disk.exists(path) else None


def write_plan(disk: Disk, directory: str, plan: TruncationPlan) -> None:
    disk.replace(naming.join(directory, naming.TRUNCATION), plan.format())


def carry_out(disk: Disk, directory: str, plan: TruncationPlan) -> None:
    """Carries out the plan on the files, durably. It may be repeated, also after an interruption anywhere."""
    path = naming.join(directory, naming.offset_file(plan.base_offset, naming.LOG))
    begun = path + naming.TEMPORARY
    is_begun = plan.starts_empty and disk.exists(begun)
    for name in disk.list_directory(directory):
        file = naming.parse_offset_file(name)
        if file is None:
            continue
        old = naming.join(directory, name)
        if file.state == naming.SWAP:
            if plan.sweeps:
                disk.remove(old)
        elif not file.state and _goes(file, plan, is_begun=is_begun):
            if file.kind == naming.LOG:
                disk.rename(old, old + naming.DELETED)
            else:
                disk.remove(old)
    if is_begun:
        disk.rename(begun, path)
    start = naming.join(directory, naming.START_OFFSET)
    if plan.starts_empty and disk.exists(start):
        disk.remove(start)  # it may begin earlier than it did
    _cut_log(disk, path, plan)
    _cut_transactions(disk, directory, plan)
    _cut_epochs(disk, directory, plan)
    disk.sync_directory(directory)


def _goes(file: naming.OffsetFile, plan: TruncationPlan, *, is_begun: bool) -> bool:
    if file.kind == naming.SNAPSHOT:
        return plan.starts_empty or file.offset > plan.end_offset
    if plan.starts_empty and file.offset == plan.base_offset and file.kind == naming.LOG:
        return is_begun  # else it is the new one already, or will be when it is cut
    return plan.starts_empty or file.offset > plan.base_offset


def _cut_log(disk: Disk, path: str, plan: TruncationPlan) -> None:
    file = disk.open(path, create=plan.starts_empty)
    try:
        if file.length() > plan.position:
            file.truncate(plan.position)
        file.sync()
    finally:
        file.close()


def _cut_transactions(disk: Disk, directory: str, plan: TruncationPlan) -> None:
    """Cuts the transaction indexes: a removed marker has aborted nothing."""
    path = naming.join(directory, naming.offset_file(plan.base_offset, naming.TRANSACTION_INDEX))
    if not disk.exists(path):
        return
    data = disk.read(path)
    try:
        entries = decode_aborted(data[: len(data) // ENTRY.size * ENTRY.size])
    except ValueError:
        entries = []
    retained_count = sum(entry.last_offset < plan.end_offset for entry in entries)
    if not retained_count:
        disk.remove(path)
        return
    file = disk.open(path)
    try:
        file.truncate(retained_count * ENTRY.size)
        file.sync()
    finally:
        file.close()


def _cut_epochs(disk: Disk, directory: str, plan: TruncationPlan) -> None:
    path = naming.join(directory, naming.LEADER_EPOCHS)
    if not disk.exists(path):
        return
    try:
        epochs = EpochHistory(checkpoints.parse_epochs(disk.read(path)))
    except BadCheckpointError:
        return  # an opening ignores it, and reads the epochs off the batches
    if epochs.truncate_from_end(0 if plan.starts_empty else plan.end_offset):
        disk.replace(path, checkpoints.format_epochs(epochs.entries))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRemoval:
    """The disk work that removes the note `truncation` of a finished truncation, once checkpoints that know of the
    truncation are durable."""

    disk: Disk
    directory: str
    life: LogLifetime
    truncation_count: int

    def run(self) -> bool:
        """Removes the note's file. Blocks, on any thread; returns whether the file was removed."""
        gone: list[bool] = []
        try:
            self.life.attempt(lambda: gone.append(self.remove()))
        except OSError as error:
            log.warning("truncation_not_removed", directory=self.directory, error=error)
        return any(gone)

    def remove(self) -> bool:
        """Does the work, for callers that closed the log."""
        if self.truncation_count != self.life.truncation_count:
            return False  # it is of a later one by now
        path = naming.join(self.directory, naming.TRUNCATION)
        if self.disk.exists(path):
            self.disk.remove(path)
        return True


class Truncation:
    """The files' part of one truncation of an open log. `run` under the log's lock, on any thread, until it is `finished`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        plan: TruncationPlan,
        *,
        life: LogLifetime,
        number: int,
        segments: Sequence[tuple[int, int]],
        now_ms: int,
        behind: Truncation | None = None,
    ) -> None:
        """`segments`: base offset and size of each that stays. `number` counts the log's truncations."""
        self._behind = behind
        self._disk = disk
        self._directory = directory
        self._life = life
        self._segments = segments
        self._now_ms = now_ms
        self.plan: Final = plan
        self.number: Final = number
        self.finished = False
        self.refused: tuple[int, str] | None = None
        """The reason for another try: number and text of the system's error, a full disk or no descriptors."""
        self.producers = Producers()
        """The producers in the rest of the log, once the truncation is finished."""

    def run(self) -> None:
        """Truncates the files. An OSError is final, for the whole directory."""
        if self.finished:
            return
        self._life.truncation_count = self.number  # jobs that were made before know other files
        self.refused = None
        try:
            self._cut_files()
            if not self.plan.starts_empty:
                self._replay()
            write_plan(self._disk, self._directory, replace(self.plan, is_done=True))
        except OSError as error:
            if error.errno not in DISK_FULL | NO_DESCRIPTORS:
                raise
            self.refused = error.errno, str(error)
        else:
            self.finished = True

    def _cut_files(self) -> None:
        if self.finished:
            return
        if self._behind is not None:
            self._behind._cut_files()
            self._behind = None
        write_plan(self._disk, self._directory, self.plan)
        carry_out(self._disk, self._directory, self.plan)

    def _replay(self) -> None:
        offset, self.producers = newest_snapshot(
            self._disk, self._directory, self.plan.end_offset, self._now_ms
        )
        bounds = [*(base_offset for base_offset, _ in self._segments[1:]), self.plan.end_offset]
        for (base_offset, size_bytes), following in zip(self._segments, bounds, strict=True):
            if following <= offset:
                continue
            path = naming.join(self._directory, naming.offset_file(base_offset, naming.LOG))
            file = self._disk.open(path, write=False)
            try:
                replay_file(self.producers, file, size_bytes, self._now_ms, from_offset=offset)
            except BrokenChain as damage:  # a reader there will meet it, too
                log.error("producers_not_replayed", path=path, reason=str(damage))
            finally:
                file.close()
        self.producers.transactions.forget_decided()
