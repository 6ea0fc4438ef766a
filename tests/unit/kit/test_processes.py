"""The kit of the tests: clusters of processes, and other processes of `odradek`."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import pytest
from tests.kit.cluster import cluster, kill_all, peak_memory_bytes, with_settings
from tests.kit.commands import RunningCommand

from odradek import Admin, NewTopic
from odradek.testing import LocalBroker


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_broker_has_a_copy_and_terms_of_its_own(tmp_path: Path) -> None:
    planned = cluster(
        tmp_path,
        {"log.retention.ms": "7", "offsets.topic.replication.factor": "1"},
        brokers=2,
        in_sync=1,
        changed=lambda terms: with_settings(terms, {"broker.rack": f"rack-{terms.node_id}"}),
    )
    first, second = (broker.terms.settings for broker in planned.brokers)
    assert (first["broker.rack"], second["broker.rack"]) == ("rack-1", "rack-2")
    assert {
        first[name] for name in ("default.replication.factor", "transaction.state.log.replication.factor")
    } == {"2"}
    assert (first["offsets.topic.replication.factor"], first["min.insync.replicas"]) == ("1", "1")
    assert first["log.retention.ms"] == "7"
    assert len({broker.terms.directory for broker in planned.brokers}) == 2


@pytest.mark.interop
def test_a_broker_that_is_killed_comes_back_at_its_address_and_all_end_with_the_cluster(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, brokers=2) as brokers, Admin(brokers.bootstrap) as admin:
        admin.create_topics([NewTopic("kept", 1, 2)])
        victim = brokers.broker(2)
        address, first_pid = victim.address, victim.pid
        assert first_pid is not None
        assert peak_memory_bytes(first_pid) > 1 << 20
        victim.kill()
        assert not is_running(first_pid)
        victim.start()
        assert victim.wait_until_ready() == address
        assert "kept" in admin.list_topics()
        pids = [broker.pid for broker in brokers.brokers]
    assert [pid for pid in pids if pid is not None and is_running(pid)] == []
    again = cluster(tmp_path, brokers=2)
    again.start()
    pids = [broker.pid for broker in again.brokers]
    kill_all(again)
    kill_all(again)
    assert [pid for pid in pids if pid is not None and is_running(pid)] == []


def test_a_command_that_does_not_start_is_an_error_with_its_words(tmp_path: Path) -> None:
    command = RunningCommand("sql", "serve", "--set", "odradek.sql.awake.querys=1", log_file=tmp_path / "log")
    with pytest.raises(AssertionError, match=r"did you mean odradek\.sql\.awake\.queries"), command:
        pass
    assert not is_running(command.pid)


@pytest.mark.interop
def test_a_command_says_its_address_and_ends_by_a_signal() -> None:
    with LocalBroker() as broker:
        words = ("console", "--bootstrap", broker.address, "--listen", "127.0.0.1:0")
        with RunningCommand(*words) as console, urllib.request.urlopen(console.address, timeout=60) as page:
            assert page.status == 200
        assert console.stop() == 0
        with RunningCommand(*words) as console:
            console.kill()
        assert console.stop() < 0
