"""A runner as a process: what it says, how it gets commands, how it ends. The runner is a script without Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.kit.waiting import eventually
from tests.unit.pipelines.conftest import FAKE_RUNNER, turn_until

from odradek.pipelines.reports import (
    Command,
    Failed,
    Paused,
    Report,
    Running,
    RunProgress,
    report_in,
    report_line,
)
from odradek.pipelines.runner_process import RunnerProcess, reason_of_end
from odradek.pipelines.status import LOG_LINE_CHARS_MAX, LOG_LINES_MAX, RecordCoordinates

Runners = Callable[..., RunnerProcess]


def collected(runner: RunnerProcess, count: int) -> list[Report]:
    reports: list[Report] = []
    turn_until(lambda: len(reports) >= count, lambda: reports.extend(runner.reports()))
    return reports


def test_reports_come_in_order_and_what_is_none_is_left_out(runners: Runners) -> None:
    runner = runners("garbage", "run", "rows=3", "fail=no JSON")
    assert collected(runner, 3) == [
        Running(),
        RunProgress(rows_count=3, batch_ms=5.0, inputs={"in": {0: 3}}),
        Failed(line="no JSON", place=RecordCoordinates(topic="in", partition=0, offset=7)),
    ]


def test_commands_arrive(runners: Runners) -> None:
    runner = runners("run")
    assert collected(runner, 1) == [Running()]
    runner.send(Command.PAUSE)
    assert collected(runner, 1) == [Paused()]
    runner.send(Command.STOP)
    eventually(lambda: runner.end() == 0)
    runner.send(Command.STOP)  # to no one


def test_the_last_lines_of_its_log_are_kept(runners: Runners) -> None:
    runner = runners("lines=5000", "say=" + "x" * 100_000, "exit=3")
    turn_until(lambda: runner.end() is not None, runner.reports)
    runner.reports()
    assert runner.end() == 3
    assert len(runner.log) == LOG_LINES_MAX
    assert "line 4999" in runner.log
    assert max(map(len, runner.log)) == LOG_LINE_CHARS_MAX


def test_kill_ends_what_it_has_started_too(runners: Runners) -> None:
    runner = runners("child", "deaf")
    turn_until(lambda: runner.log, runner.reports)
    child = int(re.sub(r"\D", "", runner.log[0]))
    runner.kill()
    eventually(lambda: runner.end() == -signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie")
    assert runner.end() == -signal.SIGKILL


def test_a_runner_ends_when_its_supervisor_is_gone(tmp_path: Path) -> None:
    """kill -9 of the supervisor: its pipe closes, and that is the runner's lifeline."""
    supervisor = (
        "import sys, time; from odradek.pipelines.runner_process import RunnerProcess\n"
        f"command = lambda c, r: [sys.executable, {str(FAKE_RUNNER)!r}, str(c), str(r), 'run']\n"
        "runner = RunnerProcess(command); print(runner.pid, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", supervisor], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    runner = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.wait()
    process.stdout.close()
    eventually(lambda: not runner.is_running() or runner.status() == "zombie")


def test_a_command_that_is_not_there_leaves_no_pipe_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    pipe = os.pipe

    def noted() -> tuple[int, int]:
        ends = pipe()
        opened.extend(ends)
        return ends

    monkeypatch.setattr(os, "pipe", noted)
    with pytest.raises(FileNotFoundError):
        RunnerProcess(lambda commands, reports: ["/no/such/program"])
    assert opened
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.parametrize(
    ("code", "log", "line"),
    [
        (1, [], "it ended with code 1"),
        (1, ["first", "the last", " "], "it ended with code 1: the last"),
        (-9, [], "it was ended by SIGKILL"),
        (-250, [], "it ended with code -250"),
    ],
)
def test_an_end_is_reported_in_one_line(code: int, log: list[str], line: str) -> None:
    assert reason_of_end(code, log) == line


@pytest.mark.parametrize(
    "report",
    [
        Running(),
        Paused(),
        RunProgress(rows_count=3, batch_ms=None, inputs=None),
        RunProgress(rows_count=0, batch_ms=2.5, inputs={"a": {0: 1, 11: 2}}),
        Failed(line="é", is_final=True),
        Failed(line="x", place=RecordCoordinates(topic="a", partition=1, offset=2)),
    ],
)
def test_a_report_arrives_as_it_was_sent(report: Report) -> None:
    assert report_in(report_line(report)) == report
