"""Who is replaced: a worker whose client stands still, and no one else."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.faults import crew
from tests.faults.crew import Crew


class Stuck:
    """It never ends."""

    def __init__(self) -> None:
        self.name = "stuck"
        self.busy_since = float("-inf")
        self.troubles: Counter[str] = Counter()

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def finish(self, timeout_s: float) -> str | None:
        return f"{self.name} in commit:1"


@pytest.mark.parametrize(("stopped", "still_busy"), [(0, ["stuck in commit:1"]), (1, [])])
def test_only_a_client_that_stands_still_explains_why_a_worker_did_not_end(
    monkeypatch: pytest.MonkeyPatch, stopped: int, still_busy: list[str]
) -> None:
    monkeypatch.setattr(crew, "stopped_clients", lambda: stopped)
    workers = Crew([Stuck])
    workers.start()

    assert workers.finish(0.0) == still_busy
    assert workers.replaced == ["stuck"] * stopped
    assert [worker.name for worker in workers] == ["stuck"]
