"""One of the broker's data directories: its lock, its identity, its checkpoints, and whether it was left cleanly.

The marker of a clean shutdown is removed, durably, before any log is opened: a crash at any later moment is a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition, kafka_id
from odradek.model.java_numbers import whole_number
from odradek.runtime.ports import DirectoryLock, Disk
from odradek.runtime.turns import in_one_go
from odradek.storage.directories.disk_condition import DiskCondition
from odradek.storage.directories.extent_file import ExtentFile
from odradek.storage.directories.generation import DiskGeneration, format_generation, parse_generation
from odradek.storage.files import checkpoints, naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.files.extents import Extent
from odradek.storage.files.lifetime import NO_DESCRIPTORS
from odradek.telemetry import events
from odradek.telemetry.metrics import Histogram

log = events.get("storage")

_META_VERSION: Final = "1"
_CLEAN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The contents of `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: str

    @classmethod
    def parse(cls, data: bytes, path: str) -> MetaProperties:
        """Raises ConfigError for a file that a broker cannot have written."""
        try:
            values = checkpoints.parse_properties(data)
            return cls(
                cluster_id=values["cluster.id"],
                node_id=whole_number(values.get("node.id") or values["broker.id"]),
                directory_id=values.get("directory.id", ""),
            )
        except (BadCheckpointError, KeyError, ValueError) as error:
            raise ConfigError(f"{path} is damaged or not of a broker: {error}") from None

    def format(self) -> bytes:
        return checkpoints.format_properties(
            {
                "version": _META_VERSION,
                "cluster.id": self.cluster_id,
                "node.id": str(self.node_id),
                "directory.id": self.directory_id,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The contents of checkpoint files that differ from what is on disk."""

    files: tuple[tuple[str, bytes], ...]
    extents: Mapping[TopicPartition, Extent] | None
    """The new contents of `log-extents`; None when it need not be replaced."""
    forgotten: tuple[TopicPartition, ...]
    """Partitions that the files will not contain any more."""

    @property
    def is_empty(self) -> bool:
        return not self.files and self.extents is None


def refuse_without_descriptors(path: str, error: OSError) -> None:
    """Raises ConfigError where the process has no descriptors left: the disk is not the cause."""
    if error.errno in NO_DESCRIPTORS:
        raise ConfigError(
            f"data directory {path} cannot be opened: {error.strerror}. Raise the limit of open files ('ulimit -n')"
        ) from error


class LogDirectory:
    """One data directory of a broker. `open` takes the lock; the rest is called in the order of the methods."""

    def __init__(self, disk: Disk, path: str, lock: DirectoryLock | None, offline: str | None) -> None:
        self._disk = disk
        self._lock = lock
        self._written: dict[str, bytes] = {}
        self._stale: dict[TopicPartition, None] = {}
        self._extent_file = ExtentFile(disk, path)
        self.path: Final = path
        self.directory_id = ""
        self.offline = offline
        """Why no log in this directory can be used; None when they can."""
        self.condition: Final = DiskCondition()
        self.sync_seconds: Final = Histogram()
        """Durations of the logs' flushes, in seconds."""
        self.was_clean = False
        """True if the directory was closed cleanly before this start."""
        self.recovery_points: dict[TopicPartition, int] = {}
        """The recovery points of the last write, including partitions that are not open."""
        self.checkpointed_points: dict[TopicPartition, int] = {}
        """The recovery points in the checkpoint when it was loaded; the extents are newer."""
        self.start_offsets: dict[TopicPartition, int] = {}
        self.knows_starts = True
        """True if `start_offsets` is complete."""
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        """The end offset of each log's compacted part."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """The high watermarks that were last reported."""
        self.held: dict[TopicPartition, UUID] = {}
        self._held_as_written: bytes | None = None
        """Logs that were made here, lost ones included, with the ids of their topics."""
        self.has_unwritten_losses = False
        """True if `held` contains a loss that its file does not contain yet."""
        self.knows_held = False
        """True if the file of `held` was there and is sound."""
        self.generation: DiskGeneration | None = None
        self.generation_is_damaged = False
        self.boot_id_before = ""
        """The machine's boot id that the broker's previous run noted; empty where it is unknown."""
        self.extents: dict[TopicPartition, Extent] = {}
        """The extents of the last write, finished or about to begin, including partitions that are not open."""

    @classmethod
    def open(cls, disk: Disk, path: str) -> LogDirectory:
        """Locks the directory, and creates it first if it is missing. Raises ConfigError when another process holds the lock;
        after any other error the directory is offline."""
        try:
            _make_durably(disk, path)
            lock = disk.lock(path)
        except BlockingIOError:
            raise ConfigError(
                f"data directory {path} is in use by another broker; stop that one, or give this one another directory"
            ) from None
        except OSError as error:
            refuse_without_descriptors(path, error)
            return cls(disk, path, None, str(error))
        return cls(disk, path, lock, None)

    def failed(self, error: OSError) -> None:
        if self.offline is None:
            self.offline = str(error)

    def read_identity(self) -> MetaProperties | None:
        """Returns the directory's identity; None in a new directory."""
        path = naming.join(self.path, naming.META_PROPERTIES)
        return MetaProperties.parse(self._disk.read(path), path) if self._disk.exists(path) else None

    def write_identity(self, cluster_id: str, node_id: int, directory_id: UUID) -> None:
        identity = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=kafka_id(directory_id))
        self._disk.replace(naming.join(self.path, naming.META_PROPERTIES), identity.format())

    def identify(self, cluster_id: str, node_id: int, new_id: Callable[[], UUID]) -> str:
        """Returns the directory's own id, made and written down where there is none yet."""
        identity = self.read_identity()
        if identity is not None and identity.directory_id:
            self.directory_id = identity.directory_id
        else:
            directory_id = new_id()
            self.write_identity(cluster_id, node_id, directory_id)
            self.directory_id = kafka_id(directory_id)
        return self.directory_id

    def holds_partitions(self) -> bool:
        return any(map(naming.parse_partition_directory, self._disk.list_directory(self.path)))

    def load(self) -> list[str]:
        """Reads the checkpoints, removes the clean marker, and returns the names in the directory."""
        marker = naming.join(self.path, naming.CLEAN_SHUTDOWN)
        self.was_clean = self._disk.exists(marker)
        if self.was_clean:
            self._disk.remove(marker)
        # Also for what a killed process renamed and did not sync: what is read here must not turn into something older.
        self._disk.sync_directory(self.path)
        self.recovery_points = self._read_offsets(naming.RECOVERY_POINTS)
        self.start_offsets = self._read_offsets(naming.START_OFFSETS)
        self.cleaned_offsets = self._read_offsets(naming.CLEANED_OFFSETS)
        self.high_watermarks = self._read_offsets(naming.HIGH_WATERMARKS)
        self._read_held()
        self._read_generation()
        self._read_extents()
        return self._disk.list_directory(self.path)

    def _read_extents(self) -> None:
        """Reads the extents, which are at least as new as the recovery points."""
        path = naming.join(self.path, naming.RECOVERY_POINTS)
        points = self._disk.read(path) if self._disk.exists(path) else b""
        self._written.setdefault(naming.RECOVERY_POINTS, points)
        self.extents = self._extent_file.read(points)
        self.checkpointed_points = dict(self.recovery_points)
        for name, extent in self.extents.items():
            self.recovery_points[name] = extent.recovery_point

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Reads a checkpoint; a damaged one is worth nothing: the logs are then scanned from their start."""
        path = naming.join(self.path, name)
        if not self._disk.exists(path):
            if name == naming.START_OFFSETS:
                sums = naming.join(self.path, naming.START_OFFSETS_SUMS)
                self.knows_starts = not self._disk.exists(sums)  # they are written first
            return {}
        try:
            data = self._disk.read(path)
            if name == naming.START_OFFSETS:
                self._check_sums(data)
            offsets = checkpoints.parse_offsets(data)
        except BadCheckpointError as error:
            log.warning("checkpoint_ignored", path=path, reason=str(error))
            self.was_clean = False
            if name == naming.START_OFFSETS:
                self.knows_starts = False
            return {}
        self._written[name] = data
        return offsets

    def _read_held(self) -> None:
        path = naming.join(self.path, naming.HELD_REPLICAS)
        if not self._disk.exists(path):
            return
        try:
            data = self._disk.read(path)
            self.held = checkpoints.parse_held(data)
        except BadCheckpointError as error:
            log.warning("checkpoint_ignored", path=path, reason=str(error))
            return
        self.knows_held = True
        self._written[naming.HELD_REPLICAS] = data

    def _read_generation(self) -> None:
        path = naming.join(self.path, naming.GENERATION)
        if not self._disk.exists(path):
            return
        try:
            self.generation = parse_generation(self._disk.read(path))
            self.boot_id_before = self.generation.boot_id
        except BadCheckpointError as error:
            self.generation_is_damaged = True
            log.warning("generation_ignored", path=path, reason=str(error))

    def may_have_forgotten(self, boot_id: str) -> bool:
        """Returns whether the machine, whose boot has this id, lost its memory since the broker's previous run wrote here."""
        return not self.was_clean and (not boot_id or boot_id != self.boot_id_before)

    def write_generation(self, generation: DiskGeneration) -> None:
        """Writes the generation. Blocks."""
        self._disk.replace(naming.join(self.path, naming.GENERATION), format_generation(generation))
        self.generation = generation

    def hold(self, name: TopicPartition, topic_id: UUID) -> None:
        """Notes that a log of the partition is here, or was."""
        if self.held.get(name) != topic_id:
            self.held[name] = topic_id
            self._held_as_written = None

    def held_once(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Returns whether any record shows that a log of the partition was made here."""
        return self.held.get(name) == topic_id or (
            not self.knows_held and any(name in offsets for offsets in self._all())
        )

    def _check_sums(self, data: bytes) -> None:
        """Checks the CRC of the start offsets, the one checkpoint that nothing else contradicts: too high an offset hides
        records."""
        path = naming.join(self.path, naming.START_OFFSETS_SUMS)
        if not self._disk.exists(path):
            return
        try:
            is_ours = checkpoints.is_among(data, self._disk.read(path))
        except BadCheckpointError as error:
            log.warning("checkpoint_ignored", path=path, reason=str(error))
            return
        if not is_ours:
            raise BadCheckpointError(f"its CRC is not in {naming.START_OFFSETS_SUMS}")

    def forget(self, name: TopicPartition) -> None:
        """Forgets a deleted partition."""
        if self.held.pop(name, None) is not None:
            self._held_as_written = None
            self._stale[name] = None
        for offsets in self._all():
            if offsets.pop(name, None) is not None:
                self._stale[name] = None

    def _all(self) -> tuple[dict[TopicPartition, int] | dict[TopicPartition, Extent], ...]:
        return (
            self.recovery_points,
            self.start_offsets,
            self.cleaned_offsets,
            self.high_watermarks,
            self.extents,
        )

    def is_stale(self, name: TopicPartition) -> bool:
        """Returns whether the checkpoint files may still contain a partition that was forgotten."""
        return name in self._stale

    def checkpoint(self) -> Checkpoint:
        """Returns the contents to write now."""
        return in_one_go(self.checkpoint_steps())

    def checkpoint_steps(self) -> Generator[None, None, Checkpoint]:
        """Does the same, with a step for each file. The contents are those at the begin of the first step."""
        forgotten, held, extents = tuple(self._stale), self._held_data(), dict(self.extents)
        known = {
            naming.RECOVERY_POINTS: dict(self.recovery_points),
            naming.START_OFFSETS: dict(self.start_offsets),
            naming.HIGH_WATERMARKS: dict(self.high_watermarks),
        }
        if self.cleaned_offsets or naming.CLEANED_OFFSETS in self._written:
            known[naming.CLEANED_OFFSETS] = dict(self.cleaned_offsets)
        contents: dict[str, bytes] = {}
        for name, offsets in known.items():
            contents[name] = checkpoints.format_offsets(offsets)
            if name == naming.HIGH_WATERMARKS:
                contents[naming.HELD_REPLICAS] = held
            yield
        files = tuple((name, data) for name, data in contents.items() if self._written.get(name) != data)
        writes_recovery_points = any(name == naming.RECOVERY_POINTS for name, _ in files)
        is_due = writes_recovery_points or extents != self._extent_file.content
        return Checkpoint(files=files, extents=extents if is_due else None, forgotten=forgotten)

    def _held_data(self) -> bytes:
        if self._held_as_written is None:
            self._held_as_written = checkpoints.format_held(self.held)
        return self._held_as_written

    def write(self, checkpoint: Checkpoint) -> None:
        """Writes the checkpoint. Blocks; one call at a time, on any thread.

        The extents come first, and go with the recovery points of before, too: a crash in between leaves both to be believed.
        """
        if checkpoint.extents is not None:
            before = self._written.get(naming.RECOVERY_POINTS, b"")
            points = dict(checkpoint.files).get(naming.RECOVERY_POINTS, before)
            self._extent_file.replace(checkpoint.extents, [points, before])
        for name, data in checkpoint.files:
            if name == naming.START_OFFSETS:
                sums = checkpoints.format_sums([data, self._written.get(name, b"")])
                self._disk.replace(naming.join(self.path, naming.START_OFFSETS_SUMS), sums)
            if name == naming.HELD_REPLICAS:
                self.write_held(data)
            else:
                self._disk.replace(naming.join(self.path, name), data)
                self._written[name] = data

    def write_held(self, data: bytes) -> None:
        """Writes which logs were made here, unless the file has that content. Blocks; not while `write` does."""
        if self._written.get(naming.HELD_REPLICAS) == data:
            return
        self._disk.sync_directory(self.path)  # a log that it speaks of must be there after a power cut
        self._disk.replace(naming.join(self.path, naming.HELD_REPLICAS), data)
        self._written[naming.HELD_REPLICAS] = data

    def extents_job(self, changed: Mapping[TopicPartition, Extent]) -> Callable[[], None]:
        """Returns a function that writes the changed extents. It blocks, on any thread; not while `write` does."""
        if self._extent_file.has_room:
            return partial(self._extent_file.append, changed)
        points = self._written.get(naming.RECOVERY_POINTS, b"")
        return partial(self._extent_file.replace, dict(self.extents), [points])

    @property
    def has_unwritten_extents(self) -> bool:
        """They could not be written."""
        return self._extent_file.content is None and bool(self.extents)

    def written(self, checkpoint: Checkpoint) -> None:
        """Notes that `write` returned, so that forgotten partitions are in no checkpoint file any more."""
        for name in checkpoint.forgotten:
            if name not in self.held and not any(name in offsets for offsets in self._all()):
                self._stale.pop(name, None)

    def mark_clean(self) -> None:
        """Marks the directory, as the last write before the lock is released: all of its logs were closed cleanly."""
        self._disk.replace(naming.join(self.path, naming.CLEAN_SHUTDOWN), _CLEAN_CONTENT)

    def unlock(self) -> None:
        self._extent_file.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def space(self) -> tuple[int, int]:
        """Returns the bytes in total and free on the file system; -1 where that is not known."""
        try:
            return self._disk.total_bytes(self.path), self._disk.free_bytes(self.path)
        except OSError:
            return -1, -1


def _make_durably(disk: Disk, path: str) -> None:
    """Creates a directory and its missing parents, and makes their names durable.

    `meta.properties` is written afterwards, so where it exists this was done. Where it does not, a killed process may have
    created the directory without syncing anything: being there proves nothing.
    """
    disk.make_directory(path)
    if disk.exists(naming.join(path, naming.META_PROPERTIES)):
        return
    parent = path
    while parent not in ("/", ""):
        parent = parent.rstrip("/").rpartition("/")[0] or "/"
        try:
            disk.sync_directory(parent)
        except PermissionError:  # not ours, so not made by us
            return
