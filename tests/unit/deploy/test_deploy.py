"""What `deploy/` holds is sound: alert rules fire as their tests say, units and manifests name settings that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from odradek.cli.serving.serve import serve
from odradek.config.loading import load_broker_config

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
UNIT: Final = DEPLOY / "systemd" / "odradek.service"
COMMANDS: Final = [UNIT, DEPLOY / "kubernetes" / "odradek.yaml", DEPLOY / "docker" / "Dockerfile"]
SECONDS: Final = 60


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is absent (apt: prometheus)")
def test_alerts_fire_as_their_tests_say() -> None:
    tested = run("promtool", "test", "rules", "alerts_test.yml", folder=DEPLOY / "prometheus")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    tests = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    assert len(alerts) >= 10
    assert alerts == set(re.findall(r"alertname: (\w+)\n +exp_alerts:", tests))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is absent")
def test_the_unit_is_sound(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/odradek/bin/odradek", sys.executable)
    text = text.replace("User=odradek\nGroup=odradek\n", "")
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    checked = run("systemd-analyze", "verify", str(unit), folder=tmp_path)
    about = [line for line in (checked.stdout + checked.stderr).splitlines() if UNIT.name in line]
    assert about == []


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_commands_have_settings_and_options_that_there_are(path: Path) -> None:
    text = path.read_text().replace('", "', " ")
    settings = dict(re.findall(r"--set ([\w.]+)=([^\s\"]+)", text))
    assert "metrics.listeners" in settings
    known = {name for option in serve.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?=[ =])", _command(text))) <= known
    settings = {
        key: re.sub(r"\$\(\(.*", "1", value).replace("$HOSTNAME", "b") for key, value in settings.items()
    }
    config, warnings = load_broker_config({"log.dirs": "/data", **settings})
    assert config.metrics.listeners
    assert not list(warnings)


def _command(text: str) -> str:
    """The part of a file that runs the broker."""
    return re.split(r'[ "]serve ', text)[1].split("\n\n")[0].split("ports:")[0]
