"""The control plane alone, small: it repeats itself, and its steps are what the model reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.scale import control_plane, model

SMALL = [
    "--brokers",
    "5",
    "--partitions",
    "60",
    "--partitions-a-topic",
    "6",
    "--quotas",
    "20",
    "--acls",
    "40",
]


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert control_plane.main(SMALL) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_a_death_is_known_after_the_session_and_not_before(document: dict[str, Any]) -> None:
    steps = {step["what"]: step for step in document["steps"]}
    death = steps["kill -9 of a broker, until all know its partitions' new leaders"]
    assert control_plane.SESSION_SECONDS - 3 < death["simulated_seconds"] < control_plane.SESSION_SECONDS + 1
    assert death["registry_commits"] >= 2  # the session's end, and the elections
    rest = steps["60 seconds in which nothing happens"]
    assert (rest["simulated_seconds"], rest["registry_commits"], rest["update_bytes_a_broker"]) == (60, 0, 0)
    assert steps["10 topics of 6 partitions are created"]["registry_commits"] == 1


def test_the_model_reads_what_the_program_prints(document: dict[str, Any]) -> None:
    costs = model.control_costs_from(document)
    assert document["sizes"]["partitions"] == 60
    assert costs.snapshot_bytes > 20
    assert costs.takeover_seconds > 0
    stored = json.loads((model.HERE / "control_plane.json").read_text(encoding="utf-8"))
    assert stored["sizes"]["partitions"] == 100_000
    assert document["sizes"].keys() == stored["sizes"].keys()
