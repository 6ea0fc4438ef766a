"""`odradek serve` as a process, and what its files tell `odradek log dump`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kit.commands import odradek_command

from odradek.cli.main import main

Process = subprocess.Popen[str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts `odradek serve` on a free port with data under `tmp_path`; stops what is left."""
    started: list[Process] = []

    def begin(*words: str, listen: str | None = "127.0.0.1:0", **environment: str) -> Process:
        arguments = ["serve", "--data", str(tmp_path / "data"), *words]
        if listen is not None:
            arguments += ["--listen", listen]
        process = subprocess.Popen(
            odradek_command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def address_of(process: Process) -> str:
    assert process.stdout is not None
    word, address = process.stdout.readline().split()
    assert word == "ready"
    return address


def stop(process: Process, with_signal: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
    process.send_signal(with_signal)
    return process.communicate(timeout=60)


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
def test_it_says_ready_accepts_connections_and_stops_cleanly(
    serve: Callable[..., Process], with_signal: signal.Signals
) -> None:
    process = serve()
    host, port = address_of(process).rsplit(":", 1)
    socket.create_connection((host, int(port)), timeout=10).close()
    out, error = stop(process, with_signal)
    assert process.returncode == 0
    assert out == ""
    assert "Traceback" not in error


def test_settings_come_from_flags_environment_and_file(
    serve: Callable[..., Process], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nnode.id=5\nmetric.reporters=Some\n")
    process = serve(str(path), "--set", "num.partitions=4", ODRADEK_LOG_RETENTION_HOURS="3")
    address = address_of(process)
    assert main(["topic", "create", "t", "-b", address, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["partitions"] == 4
    assert main(["config", "show", "--topic", "t", "-b", address, "--all", "--json"]) == 0
    shown = {entry["key"]: entry["value"] for entry in json.loads(capfd.readouterr().out)}
    assert shown["retention.ms"] == "10800000"
    assert main(["cluster", "describe", "-b", address, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["controller"] == 5
    _, error = stop(process)
    assert "metric.reporters is not supported yet and has no effect" in error


def test_a_port_in_use_is_one_line(serve: Callable[..., Process]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        out, error = serve(listen=f"127.0.0.1:{port}").communicate(timeout=60)
    assert out == ""
    assert f"{port}" in error.splitlines()[-1]
    assert "Traceback" not in error


def test_a_data_directory_in_use_is_one_line(serve: Callable[..., Process]) -> None:
    first = serve()
    address_of(first)
    second = serve()
    out, error = second.communicate(timeout=60)
    assert (second.returncode, out) == (1, "")
    assert "Traceback" not in error
    assert error.splitlines()[-1].startswith("odradek: ")
    stop(first)


def test_a_data_directory_that_is_a_file_is_one_line(serve: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    process = serve()
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "Traceback" not in error


def test_the_files_of_a_log_are_shown_and_checked(
    serve: Callable[..., Process], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    process = serve()
    address = address_of(process)
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"%d\n" % number for number in range(5_000)))
    assert main(["produce", "numbers", str(lines), "-b", address, "-X", "batch.size=1000"]) == 0
    stop(process)
    directory = tmp_path / "data" / "numbers-0"
    [log] = directory.glob("*.log")

    assert main(["log", "dump", str(tmp_path / "data"), "--json"]) == 0
    [segment] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (segment["partition"], segment["records"], segment["problems"]) == ("numbers-0", 5_000, 0)
    assert segment["index"] > 0

    assert main(["log", "dump", str(log), "--json"]) == 0
    batches = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert sum(batch["records"] for batch in batches) == 5_000
    assert batches[0]["position"] == 0

    assert main(["log", "dump", str(log), "--records"]) == 0
    values = [json.loads(line)["value"] for line in capfd.readouterr().out.splitlines()]
    assert values == [str(number) for number in range(5_000)]

    for kind, column in ((".index", "position"), (".timeindex", "timestamp")):
        assert main(["log", "dump", str(log.with_suffix(kind)), "--json"]) == 0
        assert all(column in json.loads(line) for line in capfd.readouterr().out.splitlines())

    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    assert main(["log", "dump", str(directory)]) == 1
    assert "warning: " in capfd.readouterr().err


def test_a_log_that_a_broker_writes_is_shown_without_warnings(
    serve: Callable[..., Process], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    process = serve()
    line = tmp_path / "line"
    line.write_bytes(b"one\n")
    assert main(["produce", "numbers", str(line), "-b", address_of(process)]) == 0
    assert main(["log", "dump", str(tmp_path / "data" / "numbers-0")]) == 0
    assert "warning" not in capfd.readouterr().err
    stop(process)


def test_a_path_that_holds_no_log_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing"):
        assert main(["log", "dump", str(path)]) == 1
        error = capfd.readouterr().err
        assert error.startswith(f"odradek: {path}")
        assert error.count("\n") == 1
