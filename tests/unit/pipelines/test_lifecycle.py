"""One pipeline's way: what is done after which event, on a clock that stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.ids import TopicPartition
from odradek.pipelines.document import Desired, PipelineDocument, PipelineVersion
from odradek.pipelines.lifecycle import Effect, Kill, Lifecycle, RestartPolicy, SendCommand, Start, behind
from odradek.pipelines.reports import Command, Failed, Paused, Running, RunProgress
from odradek.pipelines.status import Phase, RecordCoordinates

DOCUMENT = PipelineDocument(
    name="totals", revision=1, versions=(PipelineVersion(number=1, program="/p.py", checkpoint="totals/v1"),)
)
VERSION_2 = PipelineVersion(number=2, program="/q.py", checkpoint="totals/v1")
POLICY = RestartPolicy()
STOP, PAUSE, RESUME = (
    SendCommand(command=command) for command in (Command.STOP, Command.PAUSE, Command.RESUME)
)


class Way:
    """A lifecycle with a clock, and processes that exist as soon as they are started."""

    def __init__(self, document: PipelineDocument = DOCUMENT, chance: float = 0.0) -> None:
        self.now = 100.0
        self.lifecycle = Lifecycle(document, POLICY, lambda: chance, self.now)

    def effects(self) -> list[Effect]:
        """All that is done now."""
        done: list[Effect] = []
        while (effect := self.lifecycle.step(self.now, 0)) is not None:
            done.append(effect)
            assert len(done) < 10, "it does not come to rest"
            if isinstance(effect, Start):
                self.lifecycle.started(self.now)
        return done

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.effects()

    def report(self, report: Running | Paused | RunProgress | Failed) -> list[Effect]:
        self.lifecycle.reported(report, self.now, 0)
        return self.effects()

    def run(self) -> Way:
        assert self.effects() == [Start()]
        assert self.report(Running()) == []
        return self

    def end(self, *, clean: bool = False) -> list[Effect]:
        self.lifecycle.ended("it ended with code 1", clean, self.now, 0)
        return self.effects()

    def follow(self, **fields: object) -> list[Effect]:
        document = replace(self.lifecycle.document, revision=self.lifecycle.document.revision + 1, **fields)  # type: ignore[arg-type]
        self.lifecycle.follow(document, self.now)
        return self.effects()

    @property
    def phase(self) -> Phase:
        return self.lifecycle.phase


def test_what_is_wanted_to_run_is_started_once() -> None:
    way = Way()
    assert way.effects() == [Start()]
    assert way.effects() == []
    assert way.phase is Phase.STARTING
    way.report(Running())
    assert way.phase is Phase.RUNNING


def test_what_failed_is_started_again_after_pauses_that_double_up_to_a_limit() -> None:
    way = Way()
    pauses = []
    way.effects()
    for _ in range(9):
        assert way.end() == []
        assert way.phase is Phase.BACKING_OFF
        pause_s = way.lifecycle.restart_in_s
        assert pause_s is not None
        pauses.append(pause_s)
        assert way.later(pause_s - 0.001) == []
        assert way.later(0.002) == [Start()]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_chance_makes_a_pause_longer_by_a_fifth_at_most() -> None:
    assert [POLICY.pause_s(3, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx([4.0, 4.4, 4.8])


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_a_pause_is_always_within_its_bounds(failures: int, chance: float) -> None:
    assert (
        POLICY.first_pause_s <= POLICY.pause_s(failures, chance) <= POLICY.pause_max_s * (1 + POLICY.jitter)
    )


@pytest.mark.parametrize(("ran_s", "failures"), [(59.0, 3), (60.0, 1)])
def test_a_process_that_ran_long_enough_begins_to_count_again(ran_s: float, failures: int) -> None:
    way = Way()
    way.effects()
    for _ in range(2):
        way.end()
        way.later(100)
    way.report(Running())
    way.later(ran_s)
    way.end()
    assert way.lifecycle.failures_in_a_row == failures


@pytest.mark.parametrize(("ran_s", "failures"), [(59.0, 2), (60.0, 0)])
def test_a_process_that_goes_on_running_has_no_failures_in_a_row(ran_s: float, failures: int) -> None:
    way = Way()
    way.effects()
    for _ in range(2):
        way.end()
        way.later(100)
    way.report(Running())
    assert way.later(ran_s) == []
    assert way.lifecycle.failures_in_a_row == failures


def test_another_program_begins_to_count_again() -> None:
    way = Way()
    way.effects()
    way.end()
    way.later(100)
    way.report(Running())
    assert way.follow(versions=(*DOCUMENT.versions, VERSION_2)) == [STOP]
    assert way.end() == [Start()]
    assert way.lifecycle.failures_in_a_row == 0


def test_a_failure_keeps_what_the_process_said_and_where() -> None:
    way = Way().run()
    place = RecordCoordinates(topic="orders", partition=2, offset=7)
    way.report(Failed(line="no JSON", place=place))
    way.end()
    failure = way.lifecycle.failure
    assert failure is not None
    assert (failure.line, str(failure.place)) == ("no JSON", "orders-2 at offset 7")


def test_a_wrong_program_is_not_started_again_until_its_document_changes() -> None:
    way = Way()
    way.effects()
    way.report(Failed(line="no app in p.py", is_final=True))
    assert way.end() == []
    assert (way.phase, way.later(10_000)) == (Phase.FAILED, [])
    assert way.follow() == [Start()]
    assert way.lifecycle.failures_in_a_row == 0


def test_a_change_ends_the_waiting_after_a_failure() -> None:
    way = Way()
    way.effects()
    way.end()
    assert way.follow(desired=Desired.RUNNING) == [Start()]


def test_an_older_or_equal_document_changes_nothing() -> None:
    way = Way()
    way.effects()
    way.end()
    way.lifecycle.follow(DOCUMENT, way.now)
    assert way.effects() == []
    assert way.phase is Phase.BACKING_OFF


def test_stop_is_asked_for_and_then_enforced() -> None:
    way = Way().run()
    assert way.follow(desired=Desired.STOPPED) == [STOP]
    assert way.phase is Phase.STOPPING
    assert way.later(POLICY.stopping_max_s - 1) == []
    assert way.later(2) == [Kill()]
    assert way.later(100) == []
    assert way.end() == []
    assert (way.phase, way.lifecycle.failures_in_a_row) == (Phase.STOPPED, 0)


def test_a_start_that_takes_too_long_is_a_failure() -> None:
    way = Way()
    way.effects()
    assert way.later(POLICY.starting_max_s) == [Kill()]
    way.end()
    assert way.phase is Phase.BACKING_OFF
    assert way.lifecycle.failure is not None
    assert way.lifecycle.failure.line == "it did not run within 180 s"


def test_pause_keeps_the_process_and_resume_goes_on_in_it() -> None:
    way = Way().run()
    assert way.follow(desired=Desired.PAUSED) == [PAUSE]
    way.report(Paused())
    assert (way.phase, way.later(1_000)) == (Phase.PAUSED, [])
    assert way.follow(desired=Desired.RUNNING) == [RESUME]
    way.report(Running())
    assert way.phase is Phase.RUNNING


def test_what_starts_is_paused_when_it_runs() -> None:
    way = Way()
    way.effects()
    assert way.follow(desired=Desired.PAUSED) == []
    assert way.report(Running()) == [PAUSE]


def test_a_paused_pipeline_without_a_process_gets_none() -> None:
    way = Way(replace(DOCUMENT, desired=Desired.PAUSED))
    assert (way.effects(), way.phase) == ([], Phase.PAUSED)
    assert way.follow(desired=Desired.RUNNING) == [Start()]


def test_a_paused_process_that_dies_is_not_started() -> None:
    way = Way().run()
    way.follow(desired=Desired.PAUSED)
    way.report(Paused())
    assert (way.end(), way.phase) == ([], Phase.PAUSED)


def test_another_version_takes_the_place_of_the_one_that_runs() -> None:
    way = Way().run()
    newer = PipelineVersion(number=2, program="/q.py", checkpoint="totals/v1")
    assert way.follow(versions=(*DOCUMENT.versions, newer)) == [STOP]
    assert way.end(clean=True) == [Start()]
    assert way.lifecycle.document.current == newer


def test_a_change_that_concerns_no_process_disturbs_none() -> None:
    assert Way().run().follow(sleep_after_s=60.0) == []


# -- sleep

SLEEPY = replace(DOCUMENT, sleep_after_s=60.0)
READ = {"orders": {0: 5, 1: 9}}


def asleep() -> Way:
    way = Way(SLEEPY).run()
    way.report(RunProgress(rows_count=3, batch_ms=10, inputs=READ))
    assert way.later(60) == [STOP]
    assert way.end(clean=True) == []
    return way


def test_without_input_it_sleeps_until_its_inputs_move() -> None:
    way = asleep()
    assert (way.phase, way.later(10_000)) == (Phase.SLEEPING, [])
    assert way.lifecycle.inputs == READ
    way.lifecycle.moved()
    assert way.effects() == [Start()]


def test_input_keeps_it_awake() -> None:
    way = Way(SLEEPY).run()
    for _ in range(5):
        assert way.later(59) == []
        way.report(RunProgress(rows_count=1, batch_ms=10, inputs=READ))
    assert way.later(59) == []
    way.report(RunProgress(rows_count=0, batch_ms=None, inputs=READ))
    assert way.later(1) == [STOP]


def test_it_does_not_sleep_when_it_does_not_know_what_it_reads() -> None:
    way = Way(SLEEPY).run()
    way.report(RunProgress(rows_count=3, batch_ms=10, inputs=None))
    assert way.later(10_000) == []


def test_input_that_came_while_it_fell_asleep_wakes_it() -> None:
    way = asleep()
    assert behind(READ, {TopicPartition("orders", 1): 10}) > 0
    way.lifecycle.moved()
    assert way.effects() == [Start()]


@pytest.mark.parametrize(
    ("partition", "end", "count"), [(0, 5, 0), (0, 4, 0), (0, 6, 1), (2, 0, 0), (2, 3, 3)]
)
def test_behind_is_what_lies_past_the_position_or_in_a_new_partition(
    partition: int, end: int, count: int
) -> None:
    assert behind(READ, {TopicPartition("orders", partition): end}) == count


def test_a_sleeping_pipeline_can_be_stopped_paused_and_started() -> None:
    way = asleep()
    assert (way.follow(desired=Desired.PAUSED), way.phase) == ([], Phase.PAUSED)
    assert (way.follow(desired=Desired.STOPPED), way.phase) == ([], Phase.STOPPED)
    assert way.follow(desired=Desired.RUNNING) == [Start()]


def test_a_program_that_reads_what_there_is_and_ends_goes_on_when_there_is_more() -> None:
    way = Way().run()
    way.report(RunProgress(rows_count=3, batch_ms=10, inputs=READ))
    assert (way.end(clean=True), way.phase) == ([], Phase.SLEEPING)


def test_a_program_that_ends_and_has_read_nothing_has_failed() -> None:
    way = Way().run()
    way.end(clean=True)
    assert way.phase is Phase.BACKING_OFF


# -- the end of the supervisor


def test_halt_stops_what_runs_and_starts_nothing() -> None:
    way = Way().run()
    way.lifecycle.halt()
    assert way.effects() == [STOP]
    assert way.end(clean=True) == []
    assert not way.lifecycle.has_process


def test_halt_leaves_a_sleeping_pipeline_asleep_for_the_next_supervisor() -> None:
    way = asleep()
    way.lifecycle.halt()
    assert (way.effects(), way.phase) == ([], Phase.SLEEPING)


def test_a_deleted_pipeline_is_over_when_its_process_is() -> None:
    way = Way().run()
    way.lifecycle.follow(None, way.now)
    assert way.effects() == [STOP]
    assert not way.lifecycle.is_over
    way.end(clean=True)
    assert way.lifecycle.is_over


EVENTS = st.sampled_from(
    [
        "running",
        "paused",
        "rows",
        "failed",
        "final",
        "end",
        "clean",
        "moved",
        "start",
        "stop",
        "pause",
        "later",
    ]
)


@given(steps=st.lists(EVENTS, max_size=40))
def test_whatever_happens_it_comes_to_rest_and_obeys_in_the_end(steps: list[str]) -> None:
    """Any events in any order; then STOPPED is wanted, time passes, a killed process ends: nothing runs."""
    way = Way(SLEEPY)
    way.effects()
    for step in steps:
        match step:
            case "running" | "paused" | "rows" | "failed" | "final" if way.lifecycle.has_process:
                report = {
                    "running": Running(),
                    "paused": Paused(),
                    "rows": RunProgress(rows_count=1, batch_ms=1, inputs=READ),
                    "failed": Failed(line="x"),
                    "final": Failed(line="x", is_final=True),
                }[step]
                way.report(report)  # type: ignore[arg-type]
            case "end" | "clean" if way.lifecycle.has_process:
                way.end(clean=step == "clean")
            case "moved":
                way.lifecycle.moved()
                way.effects()
            case "start" | "stop" | "pause":
                way.follow(desired=Desired({"start": "running", "stop": "stopped", "pause": "paused"}[step]))
            case "later":
                way.later(25)
    way.follow(desired=Desired.STOPPED)
    if way.lifecycle.has_process:
        assert way.phase is Phase.STOPPING
        way.later(POLICY.stopping_max_s)
        way.end()
    assert (way.phase, way.later(1_000)) == (Phase.STOPPED, [])
    assert way.follow(desired=Desired.RUNNING) == [Start()]
