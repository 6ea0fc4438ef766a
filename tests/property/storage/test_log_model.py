"""The log against a dict from offset to record, under random work, clean closes, kills and power cuts."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from odradek.config.topic import LogConfig
from odradek.testing.sim import CrashKind

Bench = Any


class LogAgainstModel(RuleBasedStateMachine):
    """`model` has what was appended; `durable_end` is what a power cut may not take."""

    bench_of: Any

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, tuple[int, bytes]] = {}
        self.start = self.end = self.durable_end = 0
        self.counter = 0

    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([400, 1500, 6000]),
        interval=st.sampled_from([0, 200, 1000]),
    )
    def begin(self, seed: int, segment_bytes: int, interval: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=3_600_000,
            max_message_bytes=400,
        )
        self.bench = self.bench_of(self.config, seed)
        self.log = self.bench.open()

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 60),
        shift_ms=st.integers(-(10**6), 10**6),
        times=st.integers(1, 8),
    )
    def append(self, count: int, size: int, shift_ms: int, times: int) -> None:
        for _ in range(times):
            values = [b"%d:" % (self.counter + number) + bytes(size) for number in range(count)]
            self.counter += count
            timestamp = self.bench.now_ms + shift_ms
            batch = self.bench.batch(values, timestamp=timestamp)
            appended = self.log.append(batch, leader_epoch=0, now_ms=self.bench.now_ms)
            assert (appended.first_offset, appended.last_offset) == (self.end, self.end + count - 1)
            for value in values:
                self.model[self.end] = (timestamp, value)
                self.end += 1

    @rule()
    def flush(self) -> None:
        self.bench.flush(self.log)
        self.durable_end = self.end

    @rule(minutes=st.integers(1, 70))
    def wait(self, minutes: int) -> None:
        self.bench.now_ms += minutes * 60_000

    @rule(run_job=st.booleans())
    def retain(self, run_job: bool) -> None:
        for deleted in self.log.apply_retention(self.bench.now_ms):
            assert deleted.end_offset <= self.durable_end
        if run_job:
            self.bench.remove(self.log)
            self.durable_end = (
                self.log.flushed_offset
            )  # everything is made durable before anything is removed
        self.start = self.log.start_offset

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + int(part * (self.durable_end - self.start))
        self.start = max(self.start, self.log.delete_records(offset))

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.durable_end = self.end
        self.log = self.bench.open(recovery_point=self.end, start_offset=self.start)

    @rule(kind=st.sampled_from(list(CrashKind)), use_checkpoint=st.booleans())
    def crash(self, kind: CrashKind, use_checkpoint: bool) -> None:
        self.bench.crash(kind)
        recovery_point = self.durable_end if use_checkpoint else 0
        self.log = self.bench.open(clean=False, recovery_point=recovery_point, start_offset=self.start)
        assert self.log.end_offset >= self.durable_end
        if kind is CrashKind.PROCESS_KILL:
            assert self.log.end_offset == self.end
        self.end = self.durable_end = self.log.end_offset
        self.model = {offset: record for offset, record in self.model.items() if offset < self.end}

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            assert self.durable_end <= self.log.flushed_offset <= self.end

    @rule(max_bytes=st.sampled_from([1, 300, 5000]))
    def read_everything(self, max_bytes: int) -> None:
        stored = {
            record.offset: (record.timestamp, record.value)
            for record in self.bench.records(self.log, max_bytes)
        }
        assert stored == {offset: record for offset, record in self.model.items() if offset >= self.start}

    @precondition(lambda self: self.end > self.start)
    @rule(part=st.floats(0, 1), shift_ms=st.integers(-1000, 1000))
    def search_by_time(self, part: float, shift_ms: int) -> None:
        wanted = self.model[min(self.start + int(part * (self.end - self.start)), self.end - 1)][0] + shift_ms
        expected = next((o for o in range(self.start, self.end) if self.model[o][0] >= wanted), None)
        offsets = self.log.offset_for_timestamp(wanted)
        assert (None if offsets is None else offsets.offset) == expected
        latest = max(self.model[offset][0] for offset in range(self.start, self.end))
        assert self.log.max_timestamp_offset().timestamp == latest


def test_the_log_behaves_like_a_dict_that_survives_crashes(bench_of: type[Bench]) -> None:
    machine = type("Machine", (LogAgainstModel,), {"bench_of": staticmethod(bench_of)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
