"""One pipeline's way from its document to a process, and back: decisions only.

Events come in (`follow`, `reported`, `ended`, `moved`, `halt`), and `step` returns what to do now: at most one effect, until
it returns None. No clock is read, nothing is started: the supervisor does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek.model.ids import TopicPartition
from odradek.pipelines.document import Desired, PipelineDocument
from odradek.pipelines.outline import ProgramOutline
from odradek.pipelines.reports import Command, Failed, Paused, Report, Running, RunProgress
from odradek.pipelines.status import Offsets, Phase, RunFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """A supervisor's pauses and time-outs."""

    first_pause_s: float = 1.0
    """The pause after the first failure. It doubles with each failure in a row."""
    pause_max_s: float = 60.0
    jitter: float = 0.2
    """The random part of a pause, as a share of it: pipelines that failed together do not start together."""
    healthy_after_s: float = 60.0
    """The run time after which the failures of a process are counted from zero again."""
    starting_max_s: float = 180.0
    stopping_max_s: float = 30.0
    """The time that a process has to stop before it is killed."""
    starting_count_max: int = 2
    """The most starts at the same time. A start takes a core for ten seconds, so more of them would not be faster."""
    process_count_max: int | None = None
    """The most processes at the same time; the others wait. A slot becomes free when a pipeline stops or falls asleep."""

    def pause_s(self, failures_in_a_row: int, chance: float) -> float:
        """Returns the pause before the next start. `failures_in_a_row` is 1 or more, `chance` in [0, 1)."""
        doublings = min(failures_in_a_row - 1, 62)
        pause_s = min(self.pause_max_s, self.first_pause_s * 2.0**doublings)
        return pause_s * (1 + self.jitter * chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a process for the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCommand:
    """Write a command to the process."""

    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The effect that kills the process and its children (SIGKILL)."""


Effect = Start | SendCommand | Kill


class Lifecycle:
    """The state machine of one pipeline: events in, effects out.

    `chance` gives floats in [0, 1). `now` is monotonic, in seconds; `now_ms` is the wall clock, for what people read.
    """

    def __init__(
        self, document: PipelineDocument, policy: RestartPolicy, chance: Callable[[], float], now: float
    ) -> None:
        self._policy = policy
        self._chance = chance
        self.document = document
        self.phase = Phase.STOPPED
        self.phase_since = now
        self.failure: RunFailure | None = None
        self.failures_in_a_row = 0
        self.restart_in_s: float | None = None
        self.rows_count = 0
        self.batch_ms: float | None = None
        self.inputs: Offsets | None = None
        """The next offset to read of each partition, as the process reported last."""
        self.outline: ProgramOutline | None = None
        """The outline of the program that ran last, as its process reported it."""
        self._has_process = False
        self._run_key: tuple[object, ...] | None = None
        """Identifies what the process runs; a document with another key needs another process."""
        self._running_since: float | None = None
        self._input_at = now
        self._last_command: Command | None = None
        self._reported_failure: Failed | None = None
        self._is_killed = False
        self._falls_asleep = False
        self._has_moved = False
        self._is_deleted = False
        self._is_halting = False

    # -- what a supervisor asks

    @property
    def has_process(self) -> bool:
        return self._has_process

    @property
    def is_over(self) -> bool:
        """The pipeline is deleted, and has no process."""
        return self._is_deleted and not self._has_process

    @property
    def is_retired(self) -> bool:
        """The pipeline was deleted; its process may still run."""
        return self._is_deleted

    @property
    def sleeps(self) -> bool:
        return self.phase is Phase.SLEEPING

    # -- events

    def follow(self, document: PipelineDocument | None, now: float) -> None:
        """Sets the document to follow; None: it was deleted. A change lets a failed pipeline try again at once."""
        if document is None:
            self._is_deleted = True
            return
        self._is_deleted = False
        if document.revision == self.document.revision:
            return
        self.document = document
        if self.phase in (Phase.FAILED, Phase.BACKING_OFF):
            self._enter(Phase.STOPPED, now)
            self.failures_in_a_row = 0

    def fell_asleep(self, inputs: Offsets, now: float) -> None:
        """Notes that it slept already when this supervisor began."""
        self.inputs = inputs
        self._enter(Phase.SLEEPING, now)

    def moved(self) -> None:
        """Notes that the inputs have records that the pipeline has not read."""
        self._has_moved = True

    def halt(self) -> None:
        """Notes that the supervisor ends: nothing is started any more, what runs is stopped."""
        self._is_halting = True

    def started(self, now: float) -> None:
        """Notes that the process exists."""
        self._has_process = True
        if self._run_key not in (None, self.document.run_key):
            self.failures_in_a_row = 0  # they were another program's
        self._run_key = self.document.run_key
        self._running_since = self._last_command = self._reported_failure = None
        self._is_killed = self._falls_asleep = self._has_moved = False
        self.rows_count, self.batch_ms, self.inputs = 0, None, None
        self._enter(Phase.STARTING, now)

    def no_capacity(self, now: float) -> None:
        """Notes that it cannot start yet. The phase of a sleeping or failed pipeline stays."""
        if self.phase is Phase.STOPPED:
            self._enter(Phase.WAITING, now)

    def could_not_start(self, line: str, now: float, now_ms: int) -> None:
        """Notes that the system gave no process."""
        self._fail(RunFailure(line=line, at_ms=now_ms), now)

    def refused(self, line: str, now: float, now_ms: int) -> None:
        """Notes that the supervisor may not run the pipeline. Only another document, or another supervisor, changes that."""
        self._fail(RunFailure(line=line, at_ms=now_ms), now, is_final=True)

    def reported(self, report: Report, now: float, now_ms: int) -> None:
        match report:
            case Running():
                self.outline = report.outline or self.outline
                if self.phase is not Phase.STOPPING:
                    self._enter(Phase.RUNNING, now)
                if self._running_since is None:
                    self._running_since = now
                self._input_at = now
            case Paused():
                if self.phase is not Phase.STOPPING:
                    self._enter(Phase.PAUSED, now)
            case RunProgress():
                self.rows_count += report.rows_count
                self.inputs = report.inputs
                if report.rows_count:
                    self._input_at = now
                    self.batch_ms = report.batch_ms
            case Failed():
                self.failure = RunFailure(line=report.line, at_ms=now_ms, place=report.place)
                self._reported_failure = report

    def ended(self, reason: str, is_clean: bool, now: float, now_ms: int) -> None:
        """Notes that the process has ended. `reason` tells how, for the case that it reported nothing itself; `is_clean`:
        with code 0."""
        self._has_process = False
        reported, self._reported_failure = self._reported_failure, None
        was_asked = self._last_command is Command.STOP
        if was_asked and reported is None:
            asleep = self._falls_asleep and self.inputs is not None
            self._enter(Phase.SLEEPING if asleep else Phase.STOPPED, now)
        elif is_clean and reported is None and self.inputs is not None:
            self._enter(Phase.SLEEPING, now)  # its queries read what there was: more input wakes it
        else:
            self._count_again_if_healthy(now)
            if reported is None:
                self.failure = RunFailure(line=reason, at_ms=now_ms)
            assert self.failure is not None
            self._fail(self.failure, now, is_final=reported is not None and reported.is_final)

    def step(self, now: float, now_ms: int) -> Effect | None:
        """Returns the next effect. Call it again until it returns None, and after every event."""
        return self._step_process(now, now_ms) if self._has_process else self._step_without(now)

    # -- decisions

    def _step_process(self, now: float, now_ms: int) -> Effect | None:
        policy = self._policy
        self._count_again_if_healthy(now)
        if self.phase is Phase.STOPPING:
            return self._kill_once() if now - self.phase_since >= policy.stopping_max_s else None
        if not self._may_run or self.document.run_key != self._run_key:
            return self._stop(now)
        if self.phase is Phase.STARTING and now - self.phase_since >= policy.starting_max_s:
            self.failure = RunFailure(line=f"it did not run within {policy.starting_max_s:g} s", at_ms=now_ms)
            self._reported_failure = Failed(line=self.failure.line)
            return self._kill_once()
        wanted = Command.PAUSE if self.document.desired is Desired.PAUSED else Command.RESUME
        if self.phase is not Phase.STARTING and wanted is not (self._last_command or Command.RESUME):
            self._last_command = wanted
            return SendCommand(command=wanted)
        if self._is_idle(now):
            self._falls_asleep = True
            return self._stop(now)
        return None

    def _step_without(self, now: float) -> Effect | None:
        if not self._may_run:
            if self.phase is not Phase.SLEEPING or not self._is_halting:
                self._rest(Phase.STOPPED, now)
            return None
        if self.document.desired is Desired.PAUSED:
            self._rest(Phase.PAUSED, now)
            return None
        if self.phase is Phase.FAILED:
            return None
        if self.phase is Phase.BACKING_OFF:
            assert self.restart_in_s is not None
            return None if now - self.phase_since < self.restart_in_s else Start()
        if self.phase is Phase.SLEEPING and not self._has_moved:
            return None
        return Start()

    def _count_again_if_healthy(self, now: float) -> None:
        if self._running_since is not None and now - self._running_since >= self._policy.healthy_after_s:
            self.failures_in_a_row = 0

    @property
    def _may_run(self) -> bool:
        return not (self._is_deleted or self._is_halting) and self.document.desired is not Desired.STOPPED

    def _is_idle(self, now: float) -> bool:
        after_s = self.document.sleep_after_s
        return (
            after_s is not None
            and self.phase is Phase.RUNNING
            and self.inputs is not None
            and now - self._input_at >= after_s
        )

    def _stop(self, now: float) -> Effect:
        self._last_command = Command.STOP
        self._enter(Phase.STOPPING, now)
        return SendCommand(command=Command.STOP)

    def _kill_once(self) -> Effect | None:
        if self._is_killed:
            return None
        self._is_killed = True
        return Kill()

    def _fail(self, failure: RunFailure, now: float, *, is_final: bool = False) -> None:
        self.failure = failure
        self.failures_in_a_row += 1
        if is_final:
            self._enter(Phase.FAILED, now)
        else:
            self._enter(Phase.BACKING_OFF, now)
            self.restart_in_s = self._policy.pause_s(self.failures_in_a_row, self._chance())

    def _rest(self, phase: Phase, now: float) -> None:
        if self.phase is not phase:
            self._enter(phase, now)

    def _enter(self, phase: Phase, now: float) -> None:
        self.phase = phase
        self.phase_since = now
        self.restart_in_s = None


def behind(inputs: Offsets, ends: Mapping[TopicPartition, int]) -> int:
    """Returns the sum of records that were not read. New partitions count from 0; lost ones do not count."""
    return sum(max(0, end - inputs.get(tp.topic, {}).get(tp.partition, 0)) for tp, end in ends.items())
