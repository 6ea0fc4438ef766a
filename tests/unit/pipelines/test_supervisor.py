"""The supervisor with real processes (scripts without Spark), topics in memory, and a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.unit.pipelines.conftest import MovedClock, TopicsInMemory, document, fake_command, turn_until

from odradek.model.ids import TopicPartition
from odradek.pipelines.admission import RunRefused
from odradek.pipelines.document import Desired, PipelineDocument
from odradek.pipelines.lifecycle import RestartPolicy
from odradek.pipelines.runner_process import RunnerProcess
from odradek.pipelines.status import Phase, PipelineStatus
from odradek.pipelines.supervisor import LOOK_EVERY_S, PUBLISH_EVERY_S, Supervisor
from odradek.runtime.real_clock import SystemEntropy

POLICY = RestartPolicy(jitter=0.0)


class Ground:
    """A supervisor and what it stands on."""

    def __init__(self, clock: MovedClock) -> None:
        self.clock = clock
        self.topics = TopicsInMemory()
        self.launched: list[RunnerProcess] = []
        self.launch: Callable[[PipelineDocument], RunnerProcess] = self._launch
        self.policy = POLICY
        self.supervisor = self.new()

    def new(self) -> Supervisor:
        return Supervisor(
            self.topics,
            lambda wanted: self.launch(wanted),
            self.clock,
            SystemEntropy(),
            name="me",
            policy=self.policy,
        )

    def _launch(self, wanted: PipelineDocument) -> RunnerProcess:
        runner = RunnerProcess(fake_command(wanted.current.args))
        self.launched.append(runner)
        return runner

    def status(self, name: str = "totals") -> PipelineStatus:
        status = self.topics.statuses[name]
        assert status is not None
        return status

    def until(self, phase: Phase, name: str = "totals") -> PipelineStatus:
        turn_until(
            lambda: (status := self.topics.statuses.get(name)) is not None and status.phase is phase,
            self.supervisor.turn,
        )
        return self.status(name)

    def later(self, seconds: float) -> None:
        self.clock.now += seconds
        self.supervisor.turn()

    def follow(self, before: PipelineDocument, **fields: object) -> PipelineDocument:
        after = replace(before, revision=before.revision + 1, **fields)  # type: ignore[arg-type]
        self.supervisor.follow({after.name: after})
        return after


@pytest.fixture
def ground(clock: MovedClock) -> Iterator[Ground]:
    ground = Ground(clock)
    yield ground
    ground.supervisor.halt()
    ground.supervisor.turn()
    for runner in ground.launched:
        runner.kill()
    turn_until(lambda: ground.supervisor.is_idle, ground.supervisor.turn)


def test_a_pipeline_runs_is_paused_goes_on_and_stops(ground: Ground) -> None:
    wanted = document("totals", "run")
    ground.supervisor.follow({"totals": wanted})
    assert ground.until(Phase.RUNNING).pid == ground.launched[0].pid
    wanted = ground.follow(wanted, desired=Desired.PAUSED)
    ground.until(Phase.PAUSED)
    wanted = ground.follow(wanted, desired=Desired.RUNNING)
    ground.until(Phase.RUNNING)
    ground.follow(wanted, desired=Desired.STOPPED)
    assert ground.until(Phase.STOPPED).pid is None
    assert len(ground.launched) == 1
    phases = [phase for _, phase in ground.topics.history]
    assert phases == ["starting", "running", "paused", "running", "stopping", "stopped"]


def test_what_failed_is_reported_with_its_record_and_log_and_started_again(ground: Ground) -> None:
    ground.supervisor.follow({"totals": document("totals", "run", "say=working", "fail=no JSON", "exit=1")})
    status = ground.until(Phase.BACKING_OFF)
    assert status.failure is not None
    assert (status.failure.line, str(status.failure.place)) == ("no JSON", "in-0 at offset 7")
    assert (status.log, status.failures_in_a_row, status.restart_in_s) == (("working",), 1, 1.0)
    ground.later(0.9)
    assert len(ground.launched) == 1
    ground.later(0.2)
    assert len(ground.launched) == 2
    assert ground.until(Phase.BACKING_OFF).restart_in_s == 2.0


def test_an_end_without_a_word_is_reported_with_the_last_line(ground: Ground) -> None:
    ground.supervisor.follow({"totals": document("totals", "say=out of memory", "exit=137")})
    failure = ground.until(Phase.BACKING_OFF).failure
    assert failure is not None
    assert failure.line == "it ended with code 137: out of memory"


def test_one_that_is_refused_waits_for_another_document(ground: Ground) -> None:
    launch, refusing = ground.launch, [True]

    def refuse(wanted: PipelineDocument) -> RunnerProcess:
        if refusing[0] and wanted.name == "strange":
            raise RunRefused("program /tmp/strange.py is not run")
        return launch(wanted)

    ground.launch = refuse
    strange = document("strange", "run")
    ground.supervisor.follow({"strange": strange, "totals": document("totals", "run")})
    status = ground.until(Phase.FAILED, "strange")
    assert status.failure is not None
    assert status.failure.line == "program /tmp/strange.py is not run"
    ground.until(Phase.RUNNING, "totals")
    ground.later(1_000)
    assert len(ground.launched) == 1
    refusing[0] = False
    ground.follow(strange)
    ground.until(Phase.RUNNING, "strange")


def test_one_that_cannot_be_started_disturbs_no_other(ground: Ground) -> None:
    launch = ground.launch

    def broken(wanted: PipelineDocument) -> RunnerProcess:
        if wanted.name == "broken":
            raise OSError(11, "Resource temporarily unavailable")
        return launch(wanted)

    ground.launch = broken
    ground.supervisor.follow({name: document(name, "run") for name in ("broken", "totals")})
    ground.until(Phase.RUNNING)
    failure = ground.until(Phase.BACKING_OFF, "broken").failure
    assert failure is not None
    assert "could not be started" in failure.line


def test_one_that_does_not_hear_is_killed(ground: Ground) -> None:
    wanted = document("totals", "run", "deaf")
    ground.supervisor.follow({"totals": wanted})
    ground.until(Phase.RUNNING)
    ground.follow(wanted, desired=Desired.STOPPED)
    ground.until(Phase.STOPPING)
    ground.later(POLICY.stopping_max_s)
    ground.until(Phase.STOPPED)


def test_rows_are_reported_now_and_then_and_phases_at_once(ground: Ground) -> None:
    ground.supervisor.follow({"totals": document("totals", "run", "rows=5")})
    ground.until(Phase.RUNNING)
    runner = ground.launched[0]
    turn_until(lambda: runner.log or True, ground.supervisor.turn)
    ground.later(PUBLISH_EVERY_S)
    turn_until(lambda: ground.status().rows_count == 5, lambda: ground.later(PUBLISH_EVERY_S))
    assert ground.status().inputs == {"in": {0: 5}}


def sleeping(ground: Ground) -> PipelineDocument:
    wanted = document("totals", "run", "rows=5", sleep_after_s=60.0)
    ground.supervisor.follow({"totals": wanted})
    ground.until(Phase.RUNNING)
    turn_until(lambda: ground.status().rows_count == 5, lambda: ground.later(PUBLISH_EVERY_S))
    ground.later(60)
    assert ground.until(Phase.SLEEPING).pid is None
    return wanted


def test_a_sleeping_pipeline_wakes_when_its_inputs_move(ground: Ground) -> None:
    sleeping(ground)
    ground.topics.ends[TopicPartition("in", 0)] = 5
    for _ in range(3):
        ground.later(LOOK_EVERY_S)
    assert ground.topics.looks[-1] == ["in"]
    assert len(ground.launched) == 1
    ground.topics.ends[TopicPartition("in", 0)] = 6
    for _ in range(2):
        ground.later(LOOK_EVERY_S)
    ground.until(Phase.RUNNING)
    assert len(ground.launched) == 2


def test_the_next_supervisor_lets_sleep_what_slept(ground: Ground) -> None:
    wanted = sleeping(ground)
    ground.supervisor.halt()
    ground.supervisor.turn()
    statuses = {name: status for name, status in ground.topics.statuses.items() if status is not None}
    ground.supervisor = ground.new()
    ground.supervisor.begin({"totals": wanted}, statuses)
    ground.later(LOOK_EVERY_S)
    assert (len(ground.launched), ground.status().phase) == (1, Phase.SLEEPING)
    ground.topics.ends[TopicPartition("in", 0)] = 9
    for _ in range(2):
        ground.later(LOOK_EVERY_S)
    assert len(ground.launched) == 2


def test_all_that_sleep_are_looked_up_in_one_request(ground: Ground) -> None:
    names = [f"p{number}" for number in range(50)]
    documents = {name: document(name, sleep_after_s=60.0) for name in names}
    asleep = PipelineStatus(
        name="",
        phase=Phase.SLEEPING,
        revision=1,
        version=1,
        since_ms=0,
        supervisor="before",
        inputs={"in": {0: 1}},
    )
    statuses = {name: replace(asleep, name=name, inputs={f"in-{name}": {0: 1}}) for name in names}
    ground.supervisor.begin(documents, statuses)
    ground.later(LOOK_EVERY_S)
    ground.later(LOOK_EVERY_S / 2)
    assert ground.topics.looks == [sorted(f"in-{name}" for name in names)]
    assert ground.launched == []


def test_a_supervisor_that_ends_stops_all_and_says_so(ground: Ground) -> None:
    ground.supervisor.follow({name: document(name, "run") for name in ("a", "b")})
    for name in ("a", "b"):
        ground.until(Phase.RUNNING, name)
    ground.supervisor.halt()
    turn_until(lambda: ground.supervisor.is_idle, ground.supervisor.turn)
    assert [ground.status(name).phase for name in ("a", "b")] == [Phase.STOPPED, Phase.STOPPED]


def test_of_a_deleted_pipeline_nothing_stays(ground: Ground) -> None:
    ground.supervisor.follow({"totals": document("totals", "run")})
    ground.until(Phase.RUNNING)
    ground.supervisor.follow({"totals": None})
    turn_until(lambda: ground.topics.statuses["totals"] is None, ground.supervisor.turn)
    assert ground.supervisor.is_idle


def test_statuses_of_pipelines_that_are_gone_are_taken_away(ground: Ground) -> None:
    old = PipelineStatus(
        name="old", phase=Phase.RUNNING, revision=1, version=1, since_ms=0, supervisor="before"
    )
    ground.supervisor.begin({}, {"old": old})
    assert ground.topics.statuses == {"old": None}


def candidate_of(wanted: PipelineDocument, *plays: str, lag: int = 1_000) -> PipelineDocument:
    version = replace(wanted.current, number=2, args=plays, checkpoint="totals/v2", suffix=".v2")
    return replace(wanted, revision=wanted.revision + 1, candidate=version, swap_lag=lag)


def rebuilding(ground: Ground, lag: int) -> PipelineDocument:
    """Version 2 runs beside version 1, and has read five records of `in`."""
    first = document("totals", "run", "rows=100")
    ground.supervisor.follow({"totals": first})
    ground.until(Phase.RUNNING)
    both = candidate_of(first, "run", "rows=5", lag=lag)
    ground.supervisor.follow({"totals": both})
    ground.until(Phase.RUNNING, "totals~v2")
    turn_until(lambda: ground.status("totals~v2").rows_count == 5, lambda: ground.later(PUBLISH_EVERY_S))
    assert [ground.status(key).version for key in ("totals", "totals~v2")] == [1, 2]
    return both


def test_a_candidate_takes_its_place_when_its_lag_is_small(ground: Ground) -> None:
    both = rebuilding(ground, lag=10)
    ground.topics.ends[TopicPartition("in", 0)] = 16
    for _ in range(3):
        ground.later(LOOK_EVERY_S)
    assert ground.topics.swaps == [], "eleven records are too many"
    ground.topics.ends[TopicPartition("in", 0)] = 15
    for _ in range(3):
        ground.later(LOOK_EVERY_S)
    assert ground.topics.swaps == [("totals", 2)], "asked once, while the document does not change"
    ground.supervisor.follow({"totals": both.swapped(0, "me")})
    pid = ground.launched[1].pid
    ground.supervisor.turn()
    turn_until(lambda: ground.topics.statuses["totals~v1"] is None, ground.supervisor.turn)
    status = ground.status()
    assert (status.version, status.pid, status.phase) == (2, pid, Phase.RUNNING)
    assert ground.launched[0].end() == 0, "the version before was asked to stop"
    assert (len(ground.launched), ground.topics.statuses["totals~v2"]) == (2, None)


def test_a_candidate_that_is_given_up_ends(ground: Ground) -> None:
    both = rebuilding(ground, lag=10)
    ground.follow(both, candidate=None)
    turn_until(lambda: ground.topics.statuses["totals~v2"] is None, ground.supervisor.turn)
    assert (ground.status().version, ground.launched[0].end()) == (1, None)


def test_a_deleted_pipeline_takes_its_candidate_along(ground: Ground) -> None:
    rebuilding(ground, lag=10)
    ground.supervisor.follow({"totals": None})
    turn_until(
        lambda: [ground.topics.statuses[key] for key in ("totals", "totals~v2")] == [None, None],
        ground.supervisor.turn,
    )
    assert ground.supervisor.is_idle


def test_the_next_supervisor_goes_on_with_both_versions(ground: Ground) -> None:
    both = candidate_of(document("totals", "run"), "run")
    ground.supervisor.begin({"totals": both}, {})
    ground.until(Phase.RUNNING)
    assert ground.until(Phase.RUNNING, "totals~v2").version == 2


def test_a_status_that_did_not_arrive_is_sent_again(ground: Ground) -> None:
    ground.supervisor.follow({"totals": document("totals", "run")})
    ground.until(Phase.RUNNING)
    ground.topics.statuses.clear()
    ground.topics.lost = {"totals", "gone"}
    ground.supervisor.turn()
    assert (ground.status().phase, ground.topics.statuses["gone"]) == (Phase.RUNNING, None)


def test_who_is_in_a_hurry_kills(ground: Ground) -> None:
    ground.supervisor.follow({"totals": document("totals", "run", "deaf")})
    ground.until(Phase.RUNNING)
    ground.supervisor.halt()
    ground.supervisor.turn()
    ground.supervisor.kill()
    turn_until(lambda: ground.supervisor.is_idle, ground.supervisor.turn)
    assert ground.status().phase is Phase.STOPPED


def test_no_more_start_at_once_than_may(ground: Ground) -> None:
    names = ["a", "b", "c"]
    ground.supervisor.follow({name: document(name) for name in names})
    ground.supervisor.turn()
    assert [ground.status(name).phase for name in names] == [Phase.STARTING, Phase.STARTING, Phase.WAITING]
    ground.supervisor.follow({"a": None})
    ground.until(Phase.STARTING, "c")
    assert len(ground.launched) == 3


def test_a_place_is_free_when_a_pipeline_falls_asleep(ground: Ground) -> None:
    ground.policy = replace(POLICY, process_count_max=1)
    ground.supervisor = ground.new()
    sleeping_soon = document("a", "run", "rows=5", sleep_after_s=60.0)
    ground.supervisor.follow({"a": sleeping_soon, "b": document("b", "run")})
    ground.until(Phase.RUNNING, "a")
    turn_until(lambda: ground.status("a").rows_count == 5, lambda: ground.later(PUBLISH_EVERY_S))
    assert ground.status("b").phase is Phase.WAITING
    ground.later(60)
    ground.until(Phase.RUNNING, "b")
    assert ground.status("a").phase is Phase.SLEEPING
    ground.topics.ends[TopicPartition("in", 0)] = 9
    for _ in range(2):
        ground.later(LOOK_EVERY_S)
    assert (ground.status("a").phase, len(ground.launched)) == (Phase.SLEEPING, 2)
