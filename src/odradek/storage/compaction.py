"""One compaction of one log, from the choice of segments to the last rename, driven piece by piece from the event loop.

What blocks runs on other threads; between two pieces the loop may stop the work, slow it down, or close the log. Only
the change of segments that readers see happens on the loop, in one step, between the commit on the disk and the renames.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from odradek.config.broker import BrokerConfig
from odradek.model.errors import KafkaError
from odradek.runtime.ports import Runtime
from odradek.storage.cleaning.access import SegmentGroup
from odradek.storage.cleaning.choice import CleaningRange
from odradek.storage.cleaning.fates import CompactionTerms, Fates, LastWrite
from odradek.storage.cleaning.keys import KeyReading, key_map_for
from odradek.storage.cleaning.pieces import Abandoned, IncrementalWork
from odradek.storage.cleaning.target import CleanedSegment
from odradek.storage.cleaning.transactions import CleanedTransactions
from odradek.storage.cleaning.writing import GroupWriting
from odradek.storage.log.log import Log

Drive = Callable[[IncrementalWork], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class CompactionStats:
    """The counts of one compaction."""

    end_offset: int
    """The log is clean below it."""
    key_count: int = 0
    map_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    segments_before: int = 0
    segments_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of one compaction: its share of the settings' total."""

    map_bytes: int
    load_factor: float
    window_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> Resources:
        threads = max(config.cleaner.threads, 1)
        return cls(
            map_bytes=config.cleaner.dedupe_buffer_size // threads,
            load_factor=config.cleaner.io_buffer_load_factor,
            window_bytes=config.cleaner.io_buffer_size // threads // 2,
        )


class Compaction:
    """One compaction of one log: `run` it once. It raises what the work raises: OSError, KafkaError for damaged batches,
    Abandoned, TooLargeError, NoSpaceError, and whatever `drive` raises to stop; the log is whole then, and some groups may
    be done."""

    def __init__(
        self, runtime: Runtime, log: Log, cleaning_range: CleaningRange, resources: Resources, drive: Drive
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._range = cleaning_range
        self._resources = resources
        self._drive = drive
        self._transactions = CleanedTransactions(())
        self._shown_offset = -1
        """End offset of the last segment group that was passed to `_transactions`."""
        self.tally = CompactionStats(end_offset=cleaning_range.first_dirty_offset)

    async def run(self) -> CompactionStats:
        try:
            return await self._run()
        except (OSError, KafkaError) as error:
            if self._log.cleaning.cancelled:  # what was read was on its way out
                raise Abandoned from error
            raise

    async def _run(self) -> CompactionStats:
        log = self._log
        reading = await self._read_keys()
        self._check_cancelled()
        from_offset = 0
        while group := log.cleaning.next_group(
            from_offset, reading.end_offset, self._range.end_offset, log.config.segment_bytes
        ):
            from_offset = group.end_offset
            try:
                await self._rewrite(group, self._terms(reading))
            finally:
                log.cleaning.release(group)
            self._check_cancelled()
        self.tally.end_offset = reading.end_offset
        return self.tally

    def _check_cancelled(self) -> None:
        if self._log.cleaning.cancelled:
            raise Abandoned

    def _terms(self, reading: KeyReading) -> CompactionTerms:
        """Returns the compaction's terms as of the clock's time now: no reader sees any more what earlier
        groups overwrote."""
        producers = {
            state.producer_id: LastWrite(state.epoch, state.batches[-1].last_offset if state.batches else -1)
            for state in self._log.producers
        }
        return CompactionTerms.of(
            reading.keys,
            end_offset=reading.end_offset,
            producers=producers,
            now_ms=self._runtime.clock.wall_ms(),
            delete_retention_ms=self._log.config.delete_retention_ms,
        )

    async def _read_keys(self) -> KeyReading:
        log, dirty, resources = self._log, self._range, self._resources
        keys = key_map_for(
            dirty.end_offset - dirty.first_dirty_offset,
            bytes_max=resources.map_bytes,
            load_factor=resources.load_factor,
            seed=self._runtime.entropy.uuid().bytes,
        )
        reading = KeyReading(
            self._runtime.disk,
            log.cleaning.life,
            log.cleaning.sources(dirty.first_dirty_offset, dirty.end_offset),
            keys,
            first_offset=dirty.first_dirty_offset,
            aborted=log.aborted_transactions(dirty.first_dirty_offset, log.end_offset),
            window_bytes=resources.window_bytes,
        )
        await self._drive(reading)
        self.tally.key_count, self.tally.map_bytes = keys.key_count, keys.size_bytes
        self.tally.read_bytes += reading.moved_bytes
        return reading

    async def _rewrite(self, group: SegmentGroup, terms: CompactionTerms) -> None:
        log, offload = self._log, self._runtime.offload
        target = CleanedSegment(
            self._runtime.disk,
            log.cleaning.life,
            log.directory,
            group.base_offset,
            index_interval_bytes=log.config.index_interval_bytes,
            buffer_bytes=self._resources.window_bytes,
        )
        writing = GroupWriting(
            self._runtime.disk,
            log.cleaning.life,
            group.sources,
            target,
            Fates(terms, self._transactions_from(group)),
            aborted=group.aborted,
            modified_ms=group.modified_ms,
            window_bytes=self._resources.window_bytes,
        )
        log.cleaning.target = target
        try:
            await self._drive(writing)
            await offload.run(target.commit)
        except BaseException:
            await offload.run(target.give_up)
            raise
        finally:
            log.cleaning.target = None
        if not log.cleaning.life.alive or log.cleaning.cancelled:
            target.close()
            raise Abandoned
        segment = log.cleaning.replace(group, target)
        await offload.run(target.replace_originals, [source.base_offset for source in group.sources])
        self._check_cancelled()
        if log.cleaning.life.alive:
            log.cleaning.settle(segment, target)
        self._count(group, writing)

    def _transactions_from(self, group: SegmentGroup) -> CleanedTransactions:
        """Returns the state of transactions at the group's start. Where segments before it were deleted meanwhile, with markers
        in them, it begins again.
        """
        if group.base_offset != self._shown_offset:
            aborted = self._log.aborted_transactions(group.base_offset, self._log.end_offset)
            self._transactions = CleanedTransactions(aborted)
        self._shown_offset = group.end_offset
        return self._transactions

    def _count(self, group: SegmentGroup, writing: GroupWriting) -> None:
        self.tally.read_bytes += writing.read_bytes
        self.tally.written_bytes += writing.target.size_bytes
        self.tally.segments_before += len(group.sources)
        self.tally.segments_after += 1
