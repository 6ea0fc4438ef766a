"""A follower's log against a list of batches, under random appends, cuts, new beginnings, kills and power cuts."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from odradek.config.topic import LogConfig
from odradek.records import read_header, split_batches
from odradek.records.batch import write_header
from odradek.testing.sim import CrashKind

Bench = Any
Batch = tuple[int, int, bytes]
"""Offset, the offset behind it, content."""


class FollowerAgainstModel(RuleBasedStateMachine):
    """`batches` is what the log has, `old` what it may have instead while its files have not followed."""

    bench_of: Any

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []
        self.old: list[tuple[list[Batch], int]] = []
        self.begin = self.durable = self.claimed = 0
        self.epoch = 0

    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([300, 1500, 6000]))
    def start(self, seed: int, segment_bytes: int) -> None:
        config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200, max_message_bytes=400)
        self.bench = self.bench_of(config, seed)
        self.log = self.bench.open()

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.begin

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60)), min_size=1, max_size=8),
        gap=st.sampled_from([0, 0, 0, 3]),
        next_epoch=st.booleans(),
    )
    def append(self, sizes: list[tuple[int, int]], gap: int, next_epoch: bool) -> None:
        self.epoch += next_epoch
        offset, fetched = self.end + gap, []
        for count, size in sizes:
            batch = bytearray(self.bench.batch([bytes(size)] * count)[0][1])
            header = read_header(batch)._replace(base_offset=offset, partition_leader_epoch=self.epoch)
            write_header(batch, header)
            self.batches.append((offset, header.next_offset, bytes(batch)))
            fetched.append((read_header(batch), memoryview(batch)))
            offset = header.next_offset
        if self.log.awaits_truncation:
            self.bench.flush(self.log)
        self.log.append_as_follower(fetched, now_ms=self.bench.now_ms)
        self.old = []

    @rule()
    def flush(self) -> None:
        self.bench.flush(self.log)
        self.durable, self.old = self.end, []
        self.claimed = max(self.claimed, self.log.recovery_point)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = self.begin + int(part * (self.end - self.begin + 2))
        self.old.append((list(self.batches), self.durable))
        self.batches = [batch for batch in self.batches if batch[1] <= offset]
        if offset <= self.begin or not self.batches:
            self.batches, self.begin = [], min(offset, self.begin)
        self.durable = min(self.durable, self.end) if self.batches else self.begin
        self.log.truncate_to(offset)

    @rule(offset=st.integers(0, 50))
    def restart(self, offset: int) -> None:
        self.old = []  # what it was began elsewhere: a crash is then not looked at before the files follow
        self.batches, self.begin, self.durable = [], offset, offset
        self.log.restart_at(offset)
        self.flush()

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.durable, self.old = self.end, []
        self.log = self.bench.open(recovery_point=self.claimed, start_offset=0)

    @rule(kind=st.sampled_from(list(CrashKind)), believes=st.booleans())
    def crash(self, kind: CrashKind, believes: bool) -> None:
        self.bench.crash(kind)
        claimed = self.claimed if believes else 0
        self.log = self.bench.open(clean=False, recovery_point=claimed, start_offset=0)
        contents = self.contents()
        for batches, durable in [(self.batches, self.durable), *self.old]:
            kept = [batch for batch in batches if batch[1] <= self.log.end_offset]
            if contents == [entry[2] for entry in kept] and self.log.end_offset >= durable:
                break
        else:
            raise AssertionError(f"{self.log.end_offset} is the end of nothing that was there")
        if kind is CrashKind.PROCESS_KILL and not self.old:
            assert self.log.end_offset == self.end
        self.batches, self.durable, self.old = kept, self.log.end_offset, []
        self.begin = self.log.start_offset

    def contents(self) -> list[bytes]:
        records, offset = [], self.log.start_offset
        while offset < self.log.end_offset:
            read = self.log.read(offset, 1000, end_offset=self.log.end_offset, at_least_one=True)
            records += [bytes(batch) for _, batch in split_batches(read.records)]
            offset = read.next_offset
        return records

    @invariant()
    def the_log_is_what_it_received(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.begin, self.end)
            assert self.contents() == [content for _, _, content in self.batches]
            assert self.log.flushed_offset <= self.end
            for offset, _, content in self.batches[-3:]:
                assert self.log.epoch_of(offset) == read_header(content).partition_leader_epoch


def test_a_follower_s_log_is_a_list_of_batches_that_survives_crashes(bench_of: type[Bench]) -> None:
    machine = type("Machine", (FollowerAgainstModel,), {"bench_of": staticmethod(bench_of)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
