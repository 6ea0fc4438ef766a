"""The stage sees harm: attacks that do it by other means than the network show in the verdict."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.hostile import heap
from tests.hostile.attack import Attack, Scale, Stage, log_of
from tests.hostile.figures import Figures
from tests.hostile.latencies import Answered, Latencies, by_phase
from tests.hostile.table import is_bad, table
from tests.hostile.trial import Outcome, try_attack

_SHORT = Scale(is_full=False, seed=1, seconds=5.0)


def _harm(stage: Stage) -> None:
    """The broker stands still for a while, logs what it should not, and holds on to sockets."""
    stage.notes["peers"] = [stage.connect() for _ in range(60)]  # kept beyond the attack
    stage.victim.pause()
    time.sleep(1.5)
    stage.victim.resume()
    with log_of(stage.victim).open("a") as log:
        log.write("Traceback (most recent call last):\n" + "x" * 5000)


def test_a_broker_that_stands_still_leaks_and_complains_is_found_out() -> None:
    attack = Attack(name="harm", claim="nothing happens", run=_harm, log_bytes_max=4096)

    outcome = try_attack(attack, 1, _SHORT, lambda line: None)
    for peer in outcome.notes.pop("peers"):
        peer.close()

    assert any("tracebacks" in wrong for wrong in outcome.wrongs)
    assert any("MB of log" in wrong for wrong in outcome.wrongs)
    assert any("descriptors are open" in wrong for wrong in outcome.wrongs)
    assert outcome.latencies["during"].max_ms > 1000
    assert any("max" in slow for slow in outcome.slow)
    assert min(outcome.lanes_p99_ms[lane] for lane in ("produce", "fetch", "heartbeat")) > 500
    assert "BAD" in table([outcome], is_strict=False)


def test_a_broker_that_ends_is_found_out() -> None:
    attack = Attack(name="end", claim="it goes on", run=lambda stage: stage.victim.kill())
    impatient = Scale(is_full=False, seed=1, seconds=5.0, calm_seconds=1.0)

    outcome = try_attack(attack, 1, impatient, lambda line: None)

    assert "brokers [1] have ended" in outcome.wrongs


def test_what_is_absent_is_reported_and_is_not_bad() -> None:
    attack = Attack(name="none", claim="", run=lambda stage: None, absent=lambda: "no such machine")

    outcome = try_attack(attack, 1, _SHORT, lambda line: None)

    assert not is_bad(outcome, is_strict=True)
    assert "absent: no such machine" in table([outcome], is_strict=True)


def test_what_is_slow_is_bad_only_where_latency_decides() -> None:
    outcome = Outcome(attack="a", claim="", brokers=3, slow=["p99 90 ms, target 50"], seconds_to_calm=0.1)

    assert not is_bad(outcome, is_strict=False)
    assert is_bad(outcome, is_strict=True)


def test_one_long_hold_counts_for_all_requests_that_would_have_waited() -> None:
    quick = [
        Answered(kind="fetch", due=number / 20, done=number / 20 + 0.001, trouble=()) for number in range(60)
    ]
    held = Answered(kind="fetch", due=3.0, done=5.0, trouble=())

    latencies = Latencies.of([*quick, held])

    assert latencies.count == 61
    assert latencies.max_ms == pytest.approx(2000.0)
    assert latencies.p99_ms == pytest.approx(1950.0, abs=60)
    assert latencies.p50_ms == pytest.approx(1.0)


def test_a_request_that_waits_when_the_attack_begins_is_one_of_those_during_it() -> None:
    quick = [
        Answered(kind="fetch", due=number / 20, done=number / 20 + 0.001, trouble=()) for number in range(60)
    ]
    held = Answered(kind="fetch", due=0.999, done=2.5, trouble=())

    phases = by_phase([*quick, held], attacked=1.0, calm=2.0)

    assert phases["before"] == quick[:20]
    assert phases["during"] == [*quick[20:40], held]
    assert phases["after"] == quick[40:]
    assert Latencies.of(phases["during"]).p99_ms > 1000


def test_figures_of_several_brokers_are_the_largest_of_each() -> None:
    most = Figures(rss_bytes=5, threads=1).most(Figures(rss_bytes=3, threads=9))

    assert (most.rss_bytes, most.threads) == (5, 9)


def test_what_the_allocator_holds_for_later_is_no_kept_memory(tmp_path: Path) -> None:
    program = "import sys, time; print('ready', flush=True); time.sleep(60)"
    environment = {**os.environ, **heap.environment(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        first = heap.ask(process.pid, tmp_path)
        second = heap.ask(process.pid, tmp_path)
        rss_bytes = Figures.read(process.pid, 1, tmp_path / "log").rss_bytes
    finally:
        process.kill()
        process.communicate()
    assert 0 < first < rss_bytes
    assert second == pytest.approx(first, abs=1 << 20)


def test_the_unused_bytes_are_those_of_arenas_without_objects() -> None:
    text = (
        "# arenas allocated current         =                   79\n"
        "79 arenas * 1048576 bytes/arena    =           82,837,504\n\n"
        "# bytes in allocated blocks        =           25,743,536\n"
        "# bytes in available blocks        =           17,736,448\n"
    )
    assert heap.unused_bytes(text) == 82_837_504 - 25_743_536
    with pytest.raises(ValueError, match="no figures"):
        heap.unused_bytes("")
