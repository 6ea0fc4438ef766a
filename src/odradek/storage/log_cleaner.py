"""Compaction in the background: rounds in which the log that needs it most comes first, until none needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Runtime
from odradek.storage.cleaning.choice import CleaningRange, cleaning_range
from odradek.storage.cleaning.pieces import Abandoned, CleanerThrottle, IncrementalRun, IncrementalWork
from odradek.storage.cleaning.target import NoSpaceError, TooLargeError
from odradek.storage.compaction import Compaction, CompactionStats, Resources
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files.lifetime import DISK_FULL, NO_DESCRIPTORS
from odradek.storage.log.log import Log
from odradek.telemetry import events

_log = events.get("storage")

_PIECE_BYTES_MAX: Final = 1 << 20
_PIECE_BYTES_MIN: Final = 16 << 10
_PIECES_PER_SECOND: Final = 8
_LOOKED_AT_ONCE: Final = 64
_DAMAGE: Final = frozenset(
    {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)


class Compacted(Protocol):
    """A partition as compaction sees it."""

    @property
    def log(self) -> Log: ...

    @property
    def last_stable_offset(self) -> int:
        """Everything below it is decided and may be read: what may be compacted."""

    def flush_if_due(self) -> None: ...


class _CleanerStopped(Exception):
    """The broker stops."""


class LogCleaner:
    """Compacts the logs of a broker in the background. Call `run_round` again and again; `stop` before the logs are closed.
    Used on the event loop."""

    def __init__(self, runtime: Runtime, directories: LogManager) -> None:
        self._runtime = runtime
        self._directories = directories
        self._throttle = CleanerThrottle()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ends compactions at their next piece; drops a segment that is half written."""
        self._stopping.set()

    async def run_round(self, partitions: Sequence[Compacted], config: BrokerConfig) -> None:
        """Compacts logs that need it, `log.cleaner.threads` at a time, until none is left."""
        if not config.cleaner.enable:
            return
        offered = [partition for partition in partitions if "compact" in partition.log.config.cleanup_policy]
        put_off: dict[Log, None] = {}
        for partition in offered:
            self._end_segment(partition, put_off)
        workers = [self._work(offered, config, put_off) for _ in range(config.cleaner.threads)]
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _end_segment(self, partition: Compacted, put_off: dict[Log, None]) -> None:
        """Ends the active segment if its records must be compacted by now."""
        try:
            if partition.log.roll_for_compaction(self._runtime.clock.wall_ms()):
                partition.flush_if_due()
        except KafkaError as error:
            _log.warning("compaction_put_off", partition=partition.log.topic_partition, reason=error.message)
            put_off[partition.log] = None

    async def _work(
        self, offered: Sequence[Compacted], config: BrokerConfig, put_off: dict[Log, None]
    ) -> None:
        while not self._stopping.is_set():
            chosen = await self._choose(offered, put_off)
            if chosen is None:
                return
            log, dirty = chosen
            if not await self._compact(log, dirty, config):
                put_off[log] = None

    # ---- choosing --------------------------------------------------------------------------------------------------

    async def _choose(
        self, offered: Sequence[Compacted], put_off: dict[Log, None]
    ) -> tuple[Log, CleaningRange] | None:
        while True:
            best: tuple[Log, CleaningRange] | None = None
            for number, partition in enumerate(offered):
                if number % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                    await asyncio.sleep(0)
                dirty = self._range_of(partition, put_off) if partition.log not in put_off else None
                if dirty is not None and (best is None or dirty.urgency > best[1].urgency):
                    best = partition.log, dirty
            if best is None or not best[0].cleaning.in_work:
                return best
            # Another worker took it while this one looked on.

    def _range_of(self, partition: Compacted, put_off: dict[Log, None]) -> CleaningRange | None:
        log = partition.log
        access = log.cleaning
        if access.in_work or access.uncleanable or log.failed is not None or log.closed:
            return None
        try:
            return cleaning_range(
                access.sealed(),
                cleaned_offset=self._directories.cleaned_offset(log.topic_partition),
                start_offset=log.start_offset,
                limit_offset=min(partition.last_stable_offset, log.recovery_point),
                config=log.config,
                now_ms=self._runtime.clock.wall_ms(),
            )
        except (KafkaError, OSError) as error:  # an age could not be read: the log's own readers will meet it
            _log.warning("compaction_put_off", partition=log.topic_partition, reason=str(error))
            put_off[log] = None
            return None

    # ---- one log ---------------------------------------------------------------------------------------------------

    async def _compact(self, log: Log, dirty: CleaningRange, config: BrokerConfig) -> bool:
        """Returns False when it should not be tried again in this round."""
        compaction = Compaction(self._runtime, log, dirty, Resources.of(config), self._driver(config))
        started = self._runtime.clock.monotonic()
        log.cleaning.begin()
        try:
            # Recovery after a crash must not need to read what is written again here: it has gaps, and lacks
            # removed markers.
            await self._directories.checkpoint(log)
            tally = await compaction.run()
            self._directories.note_cleaned(log, tally.end_offset)
            await self._directories.checkpoint(log)
        except (_CleanerStopped, Abandoned):
            return False
        except (NoSpaceError, OSError, KafkaError, TooLargeError, MemoryError) as error:
            self._failed(log, error)
            return False
        finally:
            log.cleaning.in_work = False
        self._log_compaction(log, dirty, tally, self._runtime.clock.monotonic() - started)
        return tally.end_offset > dirty.first_dirty_offset

    def _failed(self, log: Log, error: Exception) -> None:
        """Handles a failure: a full disk passes; damage does not, and would be met again; other disk errors are final for
        the disk."""
        damaged = isinstance(error, KafkaError) and error.code in _DAMAGE
        if damaged or isinstance(error, TooLargeError):
            log.cleaning.uncleanable = str(error)
            _log.error(
                "log_uncleanable", partition=log.topic_partition, directory=log.directory, reason=str(error)
            )
        elif isinstance(error, OSError) and error.errno not in DISK_FULL | NO_DESCRIPTORS:
            if self._directories.get(log.topic_partition) is log:
                self._directories.fail(log, error)
        else:
            _log.warning("compaction_put_off", partition=log.topic_partition, reason=str(error))

    def _log_compaction(self, log: Log, dirty: CleaningRange, tally: CompactionStats, seconds: float) -> None:
        _log.info(
            "log_compacted",
            partition=log.topic_partition,
            first_dirty_offset=dirty.first_dirty_offset,
            end_offset=tally.end_offset,
            dirty_ratio=round(dirty.dirty_ratio, 3),
            keys=tally.key_count,
            key_map_bytes=tally.map_bytes,
            read_bytes=tally.read_bytes,
            written_bytes=tally.written_bytes,
            segments_before=tally.segments_before,
            segments_after=tally.segments_after,
            seconds=round(seconds, 3),
        )

    # ---- pieces ----------------------------------------------------------------------------------------------------

    def _driver(self, config: BrokerConfig) -> _Driver:
        return _Driver(self._runtime, self._throttle, self._stopping, config.cleaner.io_max_bytes_per_second)


class _Driver:
    """Runs work piece by piece on other threads, as fast as it may."""

    def __init__(
        self, runtime: Runtime, throttle: CleanerThrottle, stopping: asyncio.Event, bytes_per_second: float
    ) -> None:
        self._runtime = runtime
        self._throttle = throttle
        self._stopping = stopping
        self._bytes_per_second = bytes_per_second
        share = int(min(bytes_per_second / _PIECES_PER_SECOND, _PIECE_BYTES_MAX))
        self._piece_bytes = max(share, _PIECE_BYTES_MIN)

    async def __call__(self, work: IncrementalWork) -> None:
        pieces, done = IncrementalRun(work), False
        try:
            while not done:
                if self._stopping.is_set():
                    raise _CleanerStopped
                before = work.moved_bytes
                done = await self._runtime.offload.run(pieces.advance, self._piece_bytes)
                await self._wait(work.moved_bytes - before)
        finally:
            work.close()

    async def _wait(self, moved_bytes: int) -> None:
        now = self._runtime.clock.monotonic()
        seconds = self._throttle.delay(moved_bytes, self._bytes_per_second, now)
        if seconds > 0.001:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
