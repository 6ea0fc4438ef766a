"""Each broker in a network namespace of its own, joined by a bridge: links between them can be cut, one way or both.

The run itself moves into the hub, where the bridge, the clients and ZooKeeper are: `enter_hub` restarts it there. A cut is a
"blackhole" route in the sender's namespace: what it sends is lost, what is sent to it arrives. Only iproute2 is needed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self

HUB_ADDRESS: Final = "10.99.0.254"
ZOOKEEPER_ADDRESS: Final = "10.99.0.253"
"""The hub's, too: so that a broker can be cut from ZooKeeper alone, or from the clients alone."""
_HUB_VARIABLE: Final = "ODRADEK_FAULTS_HUB"
_BRIDGE: Final = "br0"
_PARTITIONS: Final = (
    "pair",
    "pair, one way",
    "from brokers",
    "from the clients",
    "from ZooKeeper",
    "from the rest, one way",
    "from the rest",
    "from all",
)


def absent() -> str | None:
    """Why there can be no namespaces here; None when there can."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    name = f"odrtry{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return tried.stderr.strip()
    _ip("netns", "del", name)
    return None


def hub() -> str | None:
    """The name of the namespace that this process was started in by `enter_hub`."""
    return os.environ.get(_HUB_VARIABLE)


def enter_hub(arguments: Sequence[str]) -> int:
    """Run `python -m tests.faults` with these arguments in a new namespace; its exit code. The namespace goes afterwards."""
    name = f"odr{os.getpid()}"
    _ip("netns", "add", name)
    try:
        _inside(name, "link", "set", "lo", "up")
        _inside(name, "link", "add", _BRIDGE, "type", "bridge")
        for address in (HUB_ADDRESS, ZOOKEEPER_ADDRESS):
            _inside(name, "addr", "add", f"{address}/24", "dev", _BRIDGE)
        _inside(name, "link", "set", _BRIDGE, "up")
        command = ["ip", "netns", "exec", name, sys.executable, "-m", "tests.faults", *arguments]
        process = subprocess.Popen(command, env={**os.environ, _HUB_VARIABLE: name})
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()
    finally:
        _ip("netns", "del", name)


class Places:
    """A namespace for each broker, by its id; a context manager."""

    def __init__(self, broker_ids: Sequence[int]) -> None:
        self._hub = hub() or ""
        self._ids = list(broker_ids)
        self._cuts: set[tuple[int, str]] = set()

    def __enter__(self) -> Self:
        for broker in self._ids:
            self._make(broker)
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self._ids:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self.name(broker))

    def _make(self, broker: int) -> None:
        name, link = self.name(broker), f"v{broker}"
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", _BRIDGE)
        _ip("link", "set", link, "up")
        _inside(name, "addr", "add", f"{self.address(broker)}/24", "dev", "eth0")
        _inside(name, "link", "set", "lo", "up")
        _inside(name, "link", "set", "eth0", "up")

    def name(self, broker: int) -> str:
        return f"{self._hub}b{broker}"

    def address(self, broker: int) -> str:
        return f"10.99.0.{broker}"

    def prefix(self, broker: int) -> list[str]:
        """What runs a command in the broker's place."""
        return ["ip", "netns", "exec", self.name(broker)]

    # -- cutting

    def cut(self, source: int, target: str) -> None:
        """Nothing that the broker sends to the address arrives any more."""
        if (source, target) not in self._cuts:
            _inside(self.name(source), "route", "add", "blackhole", f"{target}/32")
            self._cuts.add((source, target))

    def heal(self) -> None:
        for source, target in sorted(self._cuts):
            _inside(self.name(source), "route", "del", "blackhole", f"{target}/32")
        self._cuts.clear()

    @contextmanager
    def partition(self, rng: random.Random) -> Iterator[str]:
        """One of several kinds of partition, for as long as the block lasts."""
        victim = rng.choice(self._ids)
        other = rng.choice([host_id for host_id in self._ids if host_id != victim])
        kind = rng.choice(_PARTITIONS)
        with self.without(self._links(kind, victim, other)):
            yield f"{kind}: broker {victim}"

    @contextmanager
    def without(self, links: Sequence[tuple[int, str]]) -> Iterator[None]:
        """These links are cut, from a broker to an address, for as long as the block lasts."""
        try:
            for source, target in links:
                self.cut(source, target)
            yield
        finally:
            self.heal()

    def links_to_cluster(self, victim: int) -> list[tuple[int, str]]:
        """Returns the links between a broker and the others, both ways, and to ZooKeeper: clients still reach it."""
        return self._links("from brokers", victim, victim) + self._links("from ZooKeeper", victim, victim)

    def _links(self, kind: str, victim: int, other: int) -> list[tuple[int, str]]:
        others = [host_id for host_id in self._ids if host_id != victim]
        to_others = [(victim, self.address(other_id)) for other_id in others]
        from_others = [(peer_id, self.address(victim)) for peer_id in others]
        # ZooKeeper and the clients: the hub has no route of its own to cut
        to_hub = [(victim, HUB_ADDRESS), (victim, ZOOKEEPER_ADDRESS)]
        links = {
            "pair": [(victim, self.address(other)), (other, self.address(victim))],
            "pair, one way": [(victim, self.address(other))],
            "from brokers": to_others + from_others,
            "from the clients": to_hub[:1],
            "from ZooKeeper": to_hub[1:],
            "from the rest, one way": to_hub,
            "from the rest": to_hub + to_others,
            "from all": to_hub + to_others + from_others,
        }
        return links[kind]


def _inside(name: str, *arguments: str) -> None:
    _ip("-n", name, *arguments)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
