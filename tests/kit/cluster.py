"""Brokers as processes: the one maker of clusters for tests that kill, pause or starve brokers, or weigh their process.

    with cluster(tmp_path, {"broker.session.timeout.ms": "3000"}) as brokers, Admin(brokers.bootstrap) as admin:
        brokers.broker(1).kill()
        brokers.broker(1).start()
        brokers.broker(1).wait_until_ready()

Directories, ports and the registry are the cluster's own; each broker is ended by its process id, or when this process ends.
A test of clients alone takes `odradek.testing.LocalBroker`, which is no process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from odradek.cli.serving.broker_processes import BrokerProcess, BrokerTerms, Fleet


def cluster(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    brokers: int = 3,
    in_sync: int | None = None,
    options: Sequence[str] = (),
    changed: Callable[[BrokerTerms], BrokerTerms] | None = None,
) -> Fleet:
    """Plans brokers with the ids 1 and up below `directory`; `start`, or `with`, starts them.

    Every topic, and every topic of the brokers' own, has a copy on each of them, up to three. `in_sync`: how many copies an
    acknowledged record has at least; None: Kafka's default. `settings` are for all brokers, and stronger. `changed` changes
    the terms of one broker: its rack, or a command that it is run by.
    """
    copies = str(min(brokers, 3))
    shared = {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "share.coordinator.state.topic.replication.factor": copies,
    }
    if in_sync is not None:
        shared["min.insync.replicas"] = shared["transaction.state.log.min.isr"] = str(in_sync)
    planned = Fleet.plan(brokers, directory, settings={**shared, **(settings or {})}, options=options)
    if changed is None:
        return planned
    return Fleet([BrokerProcess(changed(broker.terms)) for broker in planned.brokers])


def kill_all(fleet: Fleet) -> None:
    """Ends all brokers at once: their disks, or what was left of them, are not needed any more. Idempotent."""
    for broker in fleet.brokers:
        if broker.is_alive:
            broker.kill()
    fleet.stop()


def with_settings(terms: BrokerTerms, settings: Mapping[str, str]) -> BrokerTerms:
    """Returns the terms of a broker that has settings of its own."""
    return replace(terms, settings={**terms.settings, **settings})


def peak_memory_bytes(pid: int) -> int:
    """Returns the largest resident size that a process has had (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    match = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert match is not None, status
    return int(match[1]) * 1024
