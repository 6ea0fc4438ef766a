"""Brokers as processes: ending them works however they ended by themselves."""

import errno
import fcntl
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.serving.broker_processes import BrokerProcess, BrokerTerms, Fleet


class DyingProcess:
    """A process that was alive when it was asked for, and is dead when it is signalled."""

    stdout: Any = None
    pid = 1

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._looks = 0

    def poll(self) -> int | None:
        self._looks += 1
        if self._looks > 1:
            self.returncode = 3
        return self.returncode

    def send_signal(self, number: int) -> None:
        raise AssertionError("it is dead")

    def wait(self, timeout: float | None = None) -> int:
        self.returncode = 3
        return 3


def broker(number: int, directory: Path) -> BrokerProcess:
    return BrokerProcess(BrokerTerms(node_id=number, directory=directory, listen="127.0.0.1:0"))


def test_a_broker_that_ends_just_before_it_is_asked_to_has_stopped(tmp_path: Path) -> None:
    process = broker(1, tmp_path)
    process.process = DyingProcess()  # type: ignore[assignment]
    assert process.stop() == 3


def test_a_broker_that_cannot_be_stopped_leaves_no_other_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int] = []
    fleet = Fleet([broker(number, tmp_path) for number in (1, 2, 3)])

    def stop(process: BrokerProcess, timeout_s: float = 0.0) -> int | None:
        if process.node_id == 2:
            raise OSError("it hangs in the kernel")
        stopped.append(process.node_id)
        return 0

    monkeypatch.setattr(BrokerProcess, "stop", stop)
    with pytest.raises(OSError, match="hangs"):
        fleet.stop()
    assert stopped == [3, 1]


def test_a_paused_broker_that_was_killed_meanwhile_stops_no_one_from_stopping(tmp_path: Path) -> None:
    fleet = Fleet([broker(1, tmp_path)])
    process: Any = DyingProcess()
    fleet.brokers[0].process = process
    fleet.brokers[0].was_paused = True
    fleet.stop()
    assert process.returncode == 3


def test_ids_and_ports_follow_one_another_from_the_first(tmp_path: Path) -> None:
    fleet = Fleet.plan(2, tmp_path, first_id=4, settings={"listeners": "SSL://127.0.0.1:9092"})
    assert [process.node_id for process in fleet.brokers] == [4, 5]
    assert [process.terms.listen for process in fleet.brokers] == ["127.0.0.1:9092", "127.0.0.1:9093"]
    assert [process.terms.settings["listeners"] for process in fleet.brokers] == [
        "SSL://127.0.0.1:9092",
        "SSL://127.0.0.1:9093",
    ]


def test_a_broker_is_heard_in_a_process_with_thousands_of_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip(f"at most {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 2000)
    try:
        broker_process = broker(1, tmp_path)
        broker_process.process = DyingProcess()  # type: ignore[assignment]
        with os.fdopen(high, "rb") as stdout:
            broker_process.process.stdout = stdout  # type: ignore[union-attr]
            os.write(writing, b"ready 127.0.0.1:9092\n")
            assert broker_process.wait_until_ready(5.0) == "127.0.0.1:9092"
    finally:
        os.close(reading)
        os.close(writing)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(sys.platform != "linux", reason="two sockets cannot share an address there")
def test_a_broker_that_is_down_keeps_its_port_for_its_next_life_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as former:
        address = former.getsockname()
    process = broker(1, tmp_path)
    process.address = f"{address[0]}:{address[1]}"
    process.stop()
    with socket.socket() as client:
        assert client.connect_ex(address) == errno.ECONNREFUSED
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(address)
    with socket.create_server(address):
        pass  # create_server sets SO_REUSEADDR, as brokers do
    process.release_port()
    with socket.socket() as stranger:
        stranger.bind(address)
