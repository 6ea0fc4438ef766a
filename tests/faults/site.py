"""Where the brokers are, who coordinates them, and the faults that this makes possible beside those of every site."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.faults import clocks, disks, namespaces
from tests.faults.access.clients import Certificates, ClientSettings
from tests.faults.access.rules import RULES_AGE_S, secured_settings
from tests.faults.clocks import Clocks
from tests.faults.disks import SmallDisk
from tests.faults.namespaces import ZOOKEEPER_ADDRESS, Places
from tests.faults.nemesis import Nemesis, revive
from tests.faults.sessions import Sessions
from tests.kit.cluster import cluster
from tests.kit.waiting import seconds_until

from odradek.cli.serving.broker_processes import BrokerTerms, Fleet
from odradek.model.errors import OdradekError
from odradek.testing.zookeeper import ZooKeeperServer

BROKERS: Final = 3
_SMALL_DISK: Final = 3
_ROOT: Final = "/odradek"
_JUMPS: Final = (-1500, -60, 60, 1500)
_BACK_SECONDS: Final = 30.0
_SETTINGS: Final = {"replica.lag.time.max.ms": "3000", "auto.create.topics.enable": "false"}


@dataclass(slots=True)
class Site:
    """Brokers on loopback, or each in a network namespace; with a clock, a small disk, a ZooKeeper, where there can be."""

    fleet: Fleet
    topic: str
    places: Places | None = None
    zookeeper: ZooKeeperServer | None = None
    clocks: Clocks | None = None
    disk: SmallDisk | None = None
    certificates: Certificates | None = None
    """The certificates of a site with TLS, logins and access rules; None: of another site."""
    absent: dict[str, str] = field(default_factory=dict)
    """Faults that there cannot be here, and why."""

    @classmethod
    def open(
        cls,
        ending: ExitStack,
        directory: Path,
        *,
        topic: str,
        session_seconds: float,
        zookeeper: bool,
        full: bool,
        secured: bool,
    ) -> Site:
        """`full`: with everything that this machine allows. `secured`: with TLS, logins and access rules."""
        site = cls(Fleet([]), topic)
        session_ms = str(int(session_seconds * 1000))
        settings = {**_SETTINGS, "broker.session.timeout.ms": session_ms}
        if namespaces.hub():
            site.places = ending.enter_context(Places(range(1, BROKERS + 1)))
        if secured:
            site.certificates = Certificates.made_in(directory / "certificates", site._hosts())
            settings |= secured_settings(site.certificates)
        if zookeeper:
            bound = {"clientPortAddress": "0.0.0.0"} if site.places else {}
            site.zookeeper = ending.enter_context(ZooKeeperServer(directory / "zookeeper", settings=bound))
            host = ZOOKEEPER_ADDRESS if site.places else "127.0.0.1"
            settings["zookeeper.connect"] = f"{host}:{site.zookeeper.port}{_ROOT}"
            settings["zookeeper.session.timeout.ms"] = session_ms
        if full and clocks.absent() is None:
            site.clocks = Clocks(directory / "clocks")
        site.fleet = cluster(directory, settings, brokers=BROKERS, in_sync=2, changed=site._placed)
        if full and disks.absent() is None:
            home = site.fleet.broker(_SMALL_DISK).terms.directory
            site.disk = ending.enter_context(SmallDisk(home))
        site._note_absent(full)
        return site

    @property
    def clients(self) -> ClientSettings:
        """How the brokers are reached, once they have started."""
        authority = None if self.certificates is None else self.certificates.authority
        return ClientSettings(address=self.fleet.bootstrap, authority=authority)

    def _hosts(self) -> list[str]:
        """Returns the addresses of the brokers."""
        if self.places is None:
            return ["127.0.0.1"]
        return [self.places.address(node_id) for node_id in range(1, BROKERS + 1)]

    def _placed(self, terms: BrokerTerms) -> BrokerTerms:
        node_id = terms.node_id
        if self.places is not None:
            listen = f"{self.places.address(node_id)}:9092"
            terms = replace(terms, listen=listen, prefix=self.places.prefix(node_id))
        if self.clocks is not None:
            terms = replace(terms, prefix=[*terms.prefix, *self.clocks.prefix(node_id)])
        return terms

    def _note_absent(self, full: bool) -> None:
        if self.zookeeper is None:
            self.absent["ZooKeeper's faults"] = "not asked for (--zookeeper)"
        if self.places is None:
            self.absent["network partitions"] = "not asked for (--namespaces)"
        if self.zookeeper is None or self.places is None:
            self.absent["session expiry"] = "needs --zookeeper and --namespaces"
        not_full = "" if full else "the short form goes without"
        if self.clocks is None:
            self.absent["clock jump"] = not_full or clocks.absent() or ""
        if self.disk is None:
            self.absent["full disk"] = not_full or disks.absent() or ""

    def faults(self) -> dict[str, Callable[[Nemesis], str]]:
        """Returns the faults that this site can have beside those of every site."""
        strikes: dict[str, Callable[[Nemesis], str]] = {}
        if self.places is not None:
            strikes["network partition"] = self._partition
            if self.certificates is not None:
                strikes["broker cut off for longer than rules count"] = self._cut_off_long
            strikes["rolling restart while partitioned"] = self._rolling_restart_while_partitioned
        if self.zookeeper is not None:
            strikes["restart of ZooKeeper"] = self._restart_zookeeper
            strikes["SIGSTOP of ZooKeeper"] = self._stop_zookeeper
        if self.places is not None and self.zookeeper is not None:
            strikes["session expiry"] = self._expire
        if self.clocks is not None:
            strikes["clock jump"] = self._jump
        if self.disk is not None:
            strikes["full disk"] = self._fill
        return strikes

    def _partition(self, nemesis: Nemesis) -> str:
        assert self.places is not None
        with self.places.partition(nemesis.random) as what:
            nemesis.pause(0.5, 2.5 * nemesis.session_seconds)
        return what

    def _cut_off_long(self, nemesis: Nemesis) -> str:
        """Cuts a broker off from the others and from ZooKeeper, not from the clients, which go on asking it."""
        assert self.places is not None
        who, broker = nemesis.victim()
        with self.places.without(self.places.links_to_cluster(broker.node_id)):
            nemesis.pause(1.2 * RULES_AGE_S, 1.8 * RULES_AGE_S)
        return who

    def _rolling_restart_while_partitioned(self, nemesis: Nemesis) -> str:
        """Each is ended and started, and nothing waits for it to be ready: it may be the one that is cut off."""
        assert self.places is not None
        with self.places.partition(nemesis.random) as what:
            for broker in self.fleet.brokers:
                broker.stop()
                broker.start()
                nemesis.pause(0.5, 2.0)
        for broker in self.fleet.brokers:
            try:
                broker.wait_until_ready()
            except OdradekError:  # it gave up, as it could not reach ZooKeeper: an operator starts it again
                broker.stop()
                revive(broker)
        return what

    def _restart_zookeeper(self, nemesis: Nemesis) -> str:
        assert self.zookeeper is not None
        self.zookeeper.kill()
        nemesis.pause(0.0, nemesis.session_seconds)
        self.zookeeper.start()
        return "ZooKeeper"

    def _stop_zookeeper(self, nemesis: Nemesis) -> str:
        """Longer than sessions last: when it wakes up, it ends those that it did not hear of."""
        assert self.zookeeper is not None
        self.zookeeper.pause()
        nemesis.pause(nemesis.session_seconds, 1.5 * nemesis.session_seconds)
        self.zookeeper.resume()
        return "ZooKeeper"

    def _expire(self, nemesis: Nemesis) -> str:
        """The broker's packets to ZooKeeper, and no others, are lost until ZooKeeper has ended its session."""
        assert self.places is not None
        assert self.zookeeper is not None
        who, broker = nemesis.victim()
        with Sessions(self.zookeeper.address, _ROOT) as sessions:
            seconds_until(lambda: sessions.owner(broker.node_id) is not None, _BACK_SECONDS)
            before = sessions.owner(broker.node_id)
            with self.places.without([(broker.node_id, ZOOKEEPER_ADDRESS)]):
                gone = seconds_until(
                    lambda: sessions.owner(broker.node_id) != before, 10 * nemesis.session_seconds
                )
            back = seconds_until(lambda: sessions.owner(broker.node_id) not in (None, before), _BACK_SECONDS)
        if gone is None:
            return f"{who}, whose session did not end"
        recovery_text = (
            f"back after {back:.1f} s" if back is not None else f"not back within {_BACK_SECONDS:.0f} s"
        )
        return f"{who}, ended after {gone:.1f} s, {recovery_text}"

    def _jump(self, nemesis: Nemesis) -> str:
        assert self.clocks is not None
        who, broker = nemesis.victim()
        seconds = nemesis.random.choice(_JUMPS)
        with self.clocks.jump(broker.node_id, seconds):
            nemesis.pause(0.5, 2.0 * nemesis.session_seconds)
        return f"{who} by {seconds} s, and back"

    def _fill(self, nemesis: Nemesis) -> str:
        """Full for a while. A broker that ended, or that does not come back by itself, is started again."""
        assert self.disk is not None
        broker = self.fleet.broker(_SMALL_DISK)
        with self.disk.full():
            nemesis.pause(nemesis.session_seconds, 3.0 * nemesis.session_seconds)
        back = None
        if broker.is_alive:
            back = seconds_until(lambda: nemesis.is_in_sync(broker.node_id), _BACK_SECONDS)
        if back is not None:
            return f"broker {broker.node_id}, in sync {back:.1f} s after"
        did = "did not come back by itself" if broker.is_alive else "ended"
        with suppress(OdradekError):
            broker.stop()
        revive(broker)
        return f"broker {broker.node_id}, which {did}, and was started again"
