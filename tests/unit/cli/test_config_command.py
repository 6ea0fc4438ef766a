from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(words) == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_show_says_where_each_value_comes_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=4\nlog.retention.ms=5\nnode.id=3\nssl.key.password=hunter2\n")
    path.chmod(0o600)  # it holds a password
    monkeypatch.setenv("ODRADEK_NUM_PARTITIONS", "8")
    out, err = run(
        capsys, "config", "show", str(path), "--set", "log.retention.hours=1", "--data", "/data",
        "--listen", "0.0.0.0:9999", "--json",
    )  # fmt: skip
    assert {entry["key"]: (entry["value"], entry["from"]) for entry in json.loads(out)} == {
        "listeners": ("PLAINTEXT://0.0.0.0:9999", "--listen"),
        "log.dirs": ("/data", "--data"),
        "log.retention.hours": ("1", "flag"),
        "node.id": ("3", str(path)),
        "num.partitions": ("8", "environment"),
        "ssl.key.password": ("(hidden)", str(path)),
    }
    assert err == ("warning: setting ssl.key.password has no effect: no listener has TLS\n")


def test_show_prints_a_table_and_all_defaults_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "config", "show", "--set", "node.id=7")
    assert [line.split() for line in out.splitlines()] == [
        ["setting", "value", "from"],
        ["node.id", "7", "flag"],
    ]
    out, _ = run(capsys, "config", "show", "--all")
    assert ["log.retention.hours", "168", "default"] in [line.split() for line in out.splitlines()]


def test_show_without_settings_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "config", "show")
    assert out == "No setting is given: everything is at its default (--all shows them).\n"


def test_describe_explains_one_setting(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "config", "describe", "retention.ms")
    assert out.splitlines() == [
        "retention.ms  (topic setting)",
        "  How long records are kept; -1 sets no limit.",
        "  type: long   default: 604800000",
        "  allowed: a whole number of 64 bits, -1 or more",
        "  where it is not set: log.retention.ms, then log.retention.minutes, then log.retention.hours",
    ]


def test_describe_says_what_has_no_effect(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "config", "describe", "create.topic.policy.class.name", "--json")
    [explained] = json.loads(out)
    assert explained["effective"] is False
    assert "Policies" in explained["meaning"]


def test_describe_finds_settings_by_a_part_of_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "config", "describe", "max.connections", "--json")
    assert [entry["key"] for entry in json.loads(out)] == ["max.connections"]
    out, _ = run(capsys, "config", "describe", "connections.per", "--json")
    assert {entry["key"] for entry in json.loads(out)} == {
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
    }
