"""Runners without Spark, a clock that tests move, topics in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.kit.waiting import eventually

from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.runner_process import RunnerProcess
from odradek.pipelines.status import PipelineStatus

FAKE_RUNNER = Path(__file__).parent / "fake_runner.py"
PATIENCE_S = 30.0


def document(name: str = "totals", *plays: str, revision: int = 1, **fields: object) -> PipelineDocument:
    version = PipelineVersion(number=1, program="/p.py", args=plays, checkpoint=f"{name}/v1")
    return PipelineDocument(name=name, revision=revision, versions=(version,), **fields)  # type: ignore[arg-type]


def fake_command(plays: Sequence[str]) -> Callable[[int, int], list[str]]:
    return lambda commands, reports: [sys.executable, str(FAKE_RUNNER), str(commands), str(reports), *plays]


def turn_until(check: Callable[[], object], turn: Callable[[], object]) -> None:
    """Takes turns, as the process under test would, until the check holds."""

    def look() -> object:
        holds = check()
        if not holds:
            turn()
        return holds

    eventually(look)


class MovedClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1_000)


class TopicsInMemory:
    """What a supervisor says, and where inputs end."""

    def __init__(self) -> None:
        self.statuses: dict[str, PipelineStatus | None] = {}
        self.history: list[tuple[str, str | None]] = []
        self.ends: dict[TopicPartition, int] = {}
        self.looks: list[list[str]] = []
        self.swaps: list[tuple[str, int]] = []
        self.lost: set[str] = set()
        """Statuses that the brokers did not take."""
        self._is_looking = False

    def publish(self, name: str, status: PipelineStatus | None) -> None:
        self.statuses[name] = status
        phase = None if status is None else status.phase.value
        if not self.history or self.history[-1] != (name, phase):
            self.history.append((name, phase))

    def swap(self, name: str, number: int) -> None:
        self.swaps.append((name, number))

    def unsent(self) -> set[str]:
        names, self.lost = self.lost, set()
        return names

    def refresh(self, topics: Sequence[str]) -> None:
        self.looks.append(list(topics))
        self._is_looking = True

    def found(self) -> Mapping[TopicPartition, int] | None:
        looking, self._is_looking = self._is_looking, False
        return dict(self.ends) if looking else None


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def runners() -> Iterator[Callable[..., RunnerProcess]]:
    """Makes fake runners, and ends them."""
    made: list[RunnerProcess] = []

    def make(*plays: str) -> RunnerProcess:
        runner = RunnerProcess(fake_command(plays))
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.kill()
        eventually(lambda runner=runner: runner.end() is not None)
        runner.close()
