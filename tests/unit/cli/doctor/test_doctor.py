from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.cli.doctor import checks
from odradek.cli.doctor.checks import Level
from odradek.cli.main import main
from odradek.cli.serving.port_owner import Owner, listening_owner
from odradek.config.broker import BrokerConfig
from odradek.config.listening.listeners import Listener
from odradek.config.network import NetworkConfig
from odradek.config.server import ServerConfig, StorageConfig


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def kept_in(directory: Path, node_id: int = 1) -> BrokerConfig:
    return BrokerConfig(
        server=ServerConfig(node_id=node_id), storage=StorageConfig(log_dirs=(str(directory),))
    )


def listening(host: str, port: int) -> Listener:
    return Listener(host=host, port=port)


def test_a_free_port_is_fine() -> None:
    assert checks.check_listener(listening("127.0.0.1", 0)).level is Level.OK


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux shows it")
def test_a_port_in_use_names_the_process_that_uses_it(taken_port: int) -> None:
    finding = checks.check_listener(listening("127.0.0.1", taken_port))
    assert finding.level in (Level.FAIL, Level.WARN)
    assert f"port in use by process {os.getpid()}: " in finding.seen
    assert "--listen" in finding.advice


def test_an_address_of_another_machine_is_explained() -> None:
    finding = checks.check_listener(listening("192.0.2.1", 0))
    assert (finding.level, finding.seen) == (Level.FAIL, "this machine has no such address")
    assert "advertised.listeners" in finding.advice


def test_a_name_that_does_not_resolve_is_explained() -> None:
    finding = checks.check_listener(listening("no-such-host.invalid", 0))
    assert finding.level is Level.FAIL
    assert "does not resolve" in finding.seen


def test_advertising_loopback_to_the_network_is_a_warning() -> None:
    advertised = (Listener(host="localhost", port=9092),)
    [finding] = checks.check_advertised(
        BrokerConfig(
            network=NetworkConfig(listeners=(listening("0.0.0.0", 9092),), advertised_listeners=advertised)
        )
    )
    assert finding.level is Level.WARN
    assert "would connect to themselves" in finding.seen
    [finding] = checks.check_advertised(BrokerConfig(network=NetworkConfig(advertised_listeners=advertised)))
    assert finding.level is Level.OK


def test_a_data_directory_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    assert checks.check_directory(str(tmp_path)).level is Level.OK
    assert list(tmp_path.iterdir()) == []
    assert checks.check_directory(str(tmp_path / "a" / "b")).level is Level.OK
    assert not (tmp_path / "a").exists()


def test_a_file_in_place_of_a_data_directory_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert checks.check_directory(str(tmp_path / "data" / "odradek")).level is Level.FAIL


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_directory_without_rights_is_a_failure(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    finding = checks.check_directory(str(tmp_path))
    tmp_path.chmod(0o700)
    assert finding.level is Level.FAIL
    assert "no right to write" in finding.seen


def test_a_data_directory_in_use_by_another_process_is_a_failure(tmp_path: Path) -> None:
    from odradek.runtime.real_disk import PosixDisk

    lock = PosixDisk().lock(str(tmp_path))
    held = checks.check_directory(str(tmp_path))
    lock.release()
    assert held.level is Level.WARN
    assert "in use by a running broker" in held.seen
    assert checks.check_directory(str(tmp_path)).level is Level.OK


def test_a_data_directory_of_another_broker_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=abc\n")
    findings = list(checks.check_identity(kept_in(tmp_path, node_id=1)))
    assert [finding.level for finding in findings] == [Level.FAIL]
    assert "belongs to broker 7" in findings[0].seen
    assert next(checks.check_identity(kept_in(tmp_path, node_id=7))).level is Level.OK


@pytest.mark.parametrize(
    ("free", "level"), [(1 << 20, Level.FAIL), (1 << 29, Level.WARN), (1 << 40, Level.OK)]
)
def test_space_runs_out_in_two_steps(free: int, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    [finding] = checks.check_space("/anywhere")
    assert finding.level is level


@pytest.mark.parametrize(("soft", "level"), [(1024, Level.WARN), (4096, Level.OK), (-1, Level.OK)])
def test_few_open_files_are_a_warning(soft: int, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.resource, "getrlimit", lambda which: (soft, 65536))
    assert checks.check_descriptors().level is level


def test_a_clock_behind_the_data_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kept_in(tmp_path)
    monkeypatch.setattr(checks, "is_unsynchronised", lambda: False)
    assert [finding.level for finding in checks.check_clock(config)] == [Level.OK]
    monkeypatch.setattr(checks.time, "time", lambda: tmp_path.stat().st_mtime - 3600)
    assert "went back" in next(iter(checks.check_clock(config))).advice
    monkeypatch.setattr(checks.time, "time", lambda: 0.0)
    assert next(iter(checks.check_clock(config))).level is Level.FAIL


def test_a_missing_java_is_a_warning_about_spark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    finding = checks.check_java()
    assert finding.level is Level.WARN
    assert "only Spark pipelines need it" in finding.advice


def test_no_one_listens_on_a_port_that_proc_does_not_show(tmp_path: Path) -> None:
    assert listening_owner(9092, root=str(tmp_path)) is None


def test_the_owner_is_found_through_the_sockets_inode(tmp_path: Path) -> None:
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st tx rx tr tm retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1\n"
        "   1: 0100007F:2385 0100007F:2384 01 00000000:00000000 00:00000000 00000000 0 0 4712 1\n"
    )
    descriptors = tmp_path / "proc" / "77" / "fd"
    descriptors.mkdir(parents=True)
    (descriptors / "0").symlink_to("/dev/null")
    (descriptors / "3").symlink_to("socket:[4711]")
    (tmp_path / "proc" / "77" / "cmdline").write_bytes(b"java\0kafka.Kafka\0")
    assert listening_owner(9092, root=str(tmp_path)) == Owner(pid=77, command="java kafka.Kafka")
    assert listening_owner(9093, root=str(tmp_path)) is None


def test_the_exit_code_is_one_when_something_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = ["doctor", "--data", str(tmp_path), "--listen", "127.0.0.1:0", "--json"]
    assert main(good) == 0
    assert {entry["level"] for entry in json.loads(capsys.readouterr().out)} <= {"ok", "warn"}
    assert main([*good, "--set", "node.id=x"]) == 1
    assert [entry for entry in json.loads(capsys.readouterr().out) if entry["level"] == "fail"] == [
        {
            "level": "fail",
            "about": "settings",
            "seen": "node.id='x' is not allowed: expected a whole number of 32 bits, 0 or more",
            "advice": "correct them: `odradek config describe KEY` explains one",
        }
    ]


def test_settings_without_effect_are_warnings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "doctor",
        "--data",
        str(tmp_path),
        "--listen",
        "127.0.0.1:0",
        "--set",
        "metric.reporters=Some",
    ]
    assert main(words) == 0
    assert "warn  settings: setting metric.reporters is not supported yet" in capsys.readouterr().out


def test_a_broker_that_does_not_answer_is_a_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        words = [
            "doctor",
            "--data",
            str(tmp_path),
            "--listen",
            "127.0.0.1:0",
            "--bootstrap",
            f"127.0.0.1:{port}",
        ]
        assert main(words) == 1
    out = capsys.readouterr().out
    assert f"fail  broker at 127.0.0.1:{port}" in out
    assert "odradek serve" in out
