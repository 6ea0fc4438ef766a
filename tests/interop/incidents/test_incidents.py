"""Each incident of `examples/incidents` happens: its alert fires from the brokers' own figures, and its steps end it.

What a broker shows while the incident lasts becomes a Prometheus of an hour: counters and ages go on as they did between two
scrapes, all else stays. promtool then says which of the alerts fire. Before the incident none does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

INCIDENTS: Final = {
    "group_behind": "GroupBehind",
    "disk_fills": "DiskFills",
    "broker_died": "BrokerDied",
    "partition_offline": "PartitionOffline",
    "slow_produce": "SlowProduce",
    "hanging_transaction": "HangingTransaction",
    "hot_partition": "HotPartition",
    "client_floods": "ClientFloods",
    "ending_certificate": "EndingCertificate",
    "failing_pipeline": "FailingPipeline",
}
ROOT: Final = Path(__file__).parents[3]
EXAMPLES: Final = ROOT / "examples" / "incidents"
ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yml"
PLAY: Final = Path(__file__).with_name("recorded_play.py")
SECONDS: Final = 900
MINUTES: Final = 60
GROWING: Final = (
    "_total",
    "_bucket",
    "_count",
    "_sum",
    "_seconds_max",
    "_open_seconds",
    "_offset",
    "_client_bytes",
)
"""The ends of names of counters, of ages, and of gauges that only grow."""

Sample = list[Any]
"""Name, labels, value."""


def series(
    alert: str, first: list[list[Sample] | None], second: list[list[Sample] | None], apart_s: float
) -> list[dict[str, str]]:
    """Returns the series that the alert asks for, as promtool takes them: a sample a minute, of the listeners of one job."""
    rule = ALERTS.read_text().split(f"- alert: {alert}\n")[1].split("- alert:")[0]
    rows = []
    for number, (early, late) in enumerate(zip(first, second, strict=True)):
        instance = f'instance="b{number}"'
        rows.append(
            {"series": f'up{{job="odradek",{instance}}}', "values": f"{int(late is not None)}x{MINUTES}"}
        )
        known = {(name, labels): value for name, labels, value in early or ()}
        for name, labels, value in late or ():
            if name not in rule:
                continue
            grown = value - known.get((name, labels), value) if name.endswith(GROWING) else 0.0
            slope = max(grown, 0.0) / apart_s * 60
            text = f"{name}{{{labels + ',' if labels else ''}{instance}}}"
            rows.append({"series": text, "values": f"{value!r}+{slope!r}x{MINUTES}"})
    return rows


def fires(tmp_path: Path, rows: list[dict[str, str]], alert: str) -> bool:
    """Returns whether the alert fires at the end of the hour: promtool says what it got in place of nothing."""
    question = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    wanted = {"expr": question, "eval_time": f"{MINUTES}m", "exp_samples": []}
    test = {"interval": "1m", "input_series": rows, "promql_expr_test": [wanted]}
    path = tmp_path / "rules_test.json"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        assert "got: {} 1E+00" in done.stdout + done.stderr, done
    return done.returncode != 0


def test_every_incident_is_played() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"stage", "totals_program"}
    assert scripts == INCIDENTS.keys()


def command(module: str, directory: Path, file: Path) -> list[str]:
    words = [sys.executable, str(PLAY), module, INCIDENTS[module], str(file)]
    if module != "disk_fills":
        return words
    sys.path.insert(0, str(EXAMPLES))
    try:
        from disk_fills import on_a_small_disk
    finally:
        sys.path.remove(str(EXAMPLES))
    small = on_a_small_disk(str(directory))
    if (
        shutil.which("unshare") is None
        or subprocess.run([*small, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("a disk of one's own is absent: it takes Linux' user namespaces")
    return [*small, *words]


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(name, marks=pytest.mark.spark) if name == "failing_pipeline" else name
        for name in INCIDENTS
    ],
)
def test_an_incident_is_alerted_found_and_mended(module: str, tmp_path: Path) -> None:
    disk, file = tmp_path / "disk", tmp_path / "seen.json"
    disk.mkdir()
    played = subprocess.run(
        command(module, disk, file), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert played.returncode == 0, played.stderr
    seen = json.loads(file.read_text())
    for step in seen["steps"]:
        assert step["telling"] in step["output"], step["command"]
    assert any(step["telling"] for step in seen["steps"])
    if shutil.which("promtool") is None:
        pytest.skip("promtool is absent (apt: prometheus)")
    lasting = series(seen["alert"], seen["first"], seen["second"], seen["apart_s"])
    assert fires(tmp_path, lasting, seen["alert"])
    if module != "ending_certificate":  # it was there from the start
        assert not fires(tmp_path, series(seen["alert"], seen["before"], seen["before"], 1.0), seen["alert"])
