"""Three production brokers in a simulated world: clients that follow leaders and coordinators, a nemesis that chases roles, and
what must hold all the same.

A run has four parts. The cluster boots and the topics are made. Then everyone works while the strikes of the plan fall. Then
the faults end: every producer gets its acknowledgements, every replica is in sync again, everyone knows the same, in bounded
virtual time; all is read back and replicas are compared. At last the power of all brokers fails at one instant (or they stop
cleanly before), and what they have when they are back is read and compared once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from tests.simulation.broker.clients import PORT
from tests.simulation.cluster.admin import ChurnWork, ReassignWork
from tests.simulation.cluster.clients import ClusterContext
from tests.simulation.cluster.commits import CommitWatch
from tests.simulation.cluster.faults import ClusterFaults, CoordinatorFaults, PageCacheFaults
from tests.simulation.cluster.guests import GuestWork
from tests.simulation.cluster.keeper import ClusterKeeper, gather_all
from tests.simulation.cluster.logins import WORKER, LoginSource
from tests.simulation.cluster.monitor import ClusterMonitor
from tests.simulation.cluster.nemesis import Nemesis
from tests.simulation.cluster.plain import KeyedWork, PlainWork
from tests.simulation.cluster.plan import ClusterPlan, host_name
from tests.simulation.cluster.services import (
    ConsumerGroupWork,
    GroupWork,
    StreamsGroupWork,
    TransactionWork,
)
from tests.simulation.cluster.view import ClusterView
from tests.simulation.cluster.work import Setting, Work
from tests.simulation.disk_errors import is_disk_trouble

from odradek.broker.app import Broker
from odradek.config.broker import BrokerConfig
from odradek.registry import Registry
from odradek.testing.sim.disk_faults import CrashKind
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.registry import RegistryConditions, SimRegistryStore
from odradek.testing.sim.world import HostLifetime, World

_BROKER_COUNT: Final = 3
_BOOT_S_MAX: Final = 60.0
_DRAIN_S_MAX: Final = 90.0
"""After the last fault, everything must be acknowledged within this long."""
_SETTLE_S_MAX: Final = 45.0
"""And after that, everything must be in sync within this long."""
_TAKE_OVER_S_MAX: Final = 20.0
"""Within this long after a leader died for good, another leads."""
_AWAY_S: Final = 30.0
_WORK: Final[dict[str, Callable[[Setting], Work]]] = {
    "transactions": TransactionWork,
    "group": GroupWork,
    "consumers": ConsumerGroupWork,
    "streams": StreamsGroupWork,
    "keyed": KeyedWork,
    "churn": ChurnWork,
    "reassign": ReassignWork,
}
T = TypeVar("T")


class ClusterScenario:
    """One run in a world."""

    def __init__(self, world: World, seed: int, faults: ClusterFaults, plan: ClusterPlan) -> None:
        self._world = world
        self._plan = plan
        world.excuse = self._is_excused
        self._registry = SimRegistryStore(
            world,
            session_timeout_s=plan.session_s,
            conditions=RegistryConditions(latency_s=(0.0002, plan.registry_s)),
        )
        self._keepers = [
            ClusterKeeper(
                world.host(host_name(broker_id)),
                broker_id,
                stream(seed, f"keeper {broker_id}"),
                plan.broker(seed, broker_id),
                self._open_broker,
            )
            for broker_id in range(1, plan.broker_count + 1)
        ]
        for keeper in self._keepers:
            keeper.host.offload_delays.start_s = keeper.host.offload_delays.step_s = (0.0, plan.sync_s)
        self._clients = [world.host(f"client-{number}") for number in range(2)]
        self._view = ClusterView(self._keepers)
        self._monitor = ClusterMonitor(self._view)
        self._faults = faults
        self._nemesis = Nemesis(world, seed, faults, self._view, self._registry, self._clients)
        self._nemesis.power_fails_once = not plan.flushes
        self._commits = CommitWatch(self._keepers, self._registry.tree, self._nemesis.may_lose)
        self._nemesis.on_rot = self._commits.doubt
        logins = LoginSource(stream(seed, "nonces"))
        context = ClusterContext(
            broker="",
            brokers=tuple((cluster_keeper.host.name, PORT) for cluster_keeper in self._keepers),
            rng=stream(seed, "clients"),
            now_ms=self._clients[0].clock.wall_ms,
            leaders_change=True,
            login=logins.of(WORKER) if plan.is_secured else None,
        )
        setting = Setting(
            seed=seed,
            plan=plan,
            torment_s=faults.end_s,
            context=context,
            hosts=self._clients,
            is_calm=lambda: self._nemesis.is_over,
            is_committed=self._commits.is_committed,
        )
        self._plain = PlainWork(setting)
        self._works: list[Work] = [self._plain, *(_WORK[name](setting) for name in plan.workloads)]
        if plan.is_secured:
            self._works.insert(0, GuestWork(setting, logins))
        self._guards: list[asyncio.Task[None]] = []

    def _open_broker(self, config: BrokerConfig, life: HostLifetime) -> Broker:
        async def open_registry(*_ignored: object) -> Registry:
            return await self._registry.connect(life.host.name)

        return Broker(config, life.runtime, open_registry=open_registry)

    def _is_excused(self, error: BaseException) -> bool:
        """A request that failed on a failing disk; the keeper will restart the broker."""
        return is_disk_trouble(error) and any(life.disk.failure_count for life in self._world.lives)

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        for client in self._clients:
            client.boot()
        self._world.loop.on_turn = self._look
        self._start()
        await self._bounded(_BOOT_S_MAX, self._prepare(), "the cluster does not come up")
        seconds_max = self._faults.end_s + _DRAIN_S_MAX
        await self._bounded(seconds_max, self._work(), "clients still wait")
        await self._check()
        await self._lose_one()
        await self._end_all()
        self._start()
        await self._check()
        await self._stop()

    def _look(self) -> None:
        try:
            self._commits.look()
        except BaseException:
            self._world.loop.on_turn = None  # what follows is the end of the world
            raise

    def _start(self) -> None:
        self._monitor.is_over = False
        for keeper in self._keepers:
            keeper.stop.clear()
        self._guards = [
            asyncio.create_task(cluster_keeper.keep(), name=f"keeper {cluster_keeper.broker_id}")
            for cluster_keeper in self._keepers
        ]
        self._guards.append(asyncio.create_task(self._monitor.watch(), name="monitor"))

    async def _prepare(self) -> None:
        await self._monitor.settled(_BOOT_S_MAX)
        for work in self._works:
            await work.prepare()

    async def _work(self) -> None:
        await gather_all(self._nemesis.torment(), *(work.run() for work in self._works))

    async def _check(self) -> None:
        await self._bounded(_SETTLE_S_MAX * 2, self._monitor.settled(_SETTLE_S_MAX), "nothing settles")
        await self._bounded(_DRAIN_S_MAX, self._check_contents(), "clients still wait for what is there")
        self._monitor.compare_replicas()

    async def _check_contents(self) -> None:
        await self._plain.probe()
        for work in self._works:
            await work.check()
        await self._monitor.settled(_SETTLE_S_MAX)

    async def _lose_one(self) -> None:
        """A leader dies and stays dead, until others lead what it led."""
        if self._plan.loses_one is None:
            return
        gone = self._view.who("leader", stream(self._world.seed, "lost"))
        assert gone is not None
        gone.crash(self._plan.loses_one, _AWAY_S)
        try:
            await self._bounded(
                _AWAY_S, self._monitor.taken_over(gone, _TAKE_OVER_S_MAX), "no one takes over"
            )
        finally:
            gone.come_back.set()
        await self._bounded(_SETTLE_S_MAX * 2, self._monitor.settled(_SETTLE_S_MAX), "nothing settles")

    async def _end_all(self) -> None:
        if self._plan.ending == "clean":
            await self._stop()
        for keeper in self._keepers:
            keeper.stop.set()
            keeper.crash(CrashKind.PROCESS_KILL if self._plan.ending == "kill" else CrashKind.POWER_LOSS, 0.0)
        self._monitor.is_over = True
        await gather_all(*self._guards)

    async def _stop(self) -> None:
        self._monitor.is_over = True
        for keeper in self._keepers:
            keeper.stop.set()
        await gather_all(*self._guards)

    async def _bounded(self, seconds_max: float, work: Coroutine[Any, Any, T], otherwise: str) -> T:
        """Do it, unless a guard fails first; ViolationError when it takes longer."""
        task = asyncio.create_task(work)
        for guard in self._guards:
            guard.add_done_callback(lambda _: task.cancel())
        try:
            async with asyncio.timeout(seconds_max):
                return await task
        except TimeoutError:
            undone = [undone_work for work in self._works for undone_work in work.undone()]
            raise ViolationError(f"stuck: after {seconds_max:.0f} s {otherwise}: {undone}") from None
        except asyncio.CancelledError:
            for guard in self._guards:
                if guard.done():
                    guard.result()
            raise


def run_cluster(world: World, seed: int, faults: ClusterFaults) -> None:
    """Run the scenario in a world of its own."""
    plan = ClusterPlan.draw(seed, _BROKER_COUNT).fit_for(faults)
    world.run(ClusterScenario(world, seed, faults, plan).run)


def run_secured(world: World, seed: int, faults: ClusterFaults) -> None:
    """The same where everyone logs in by SCRAM, and ACLs say what each may do."""
    plan = ClusterPlan.draw(seed, _BROKER_COUNT).fit_for(faults).secured()
    world.run(ClusterScenario(world, seed, faults, plan).run)


def run_page_cache(world: World, seed: int, faults: PageCacheFaults) -> None:
    """The same where what is acknowledged is in the memory of two machines, and need not be on any disk."""
    plan = ClusterPlan.draw(seed, _BROKER_COUNT).without_flushes()
    world.run(ClusterScenario(world, seed, faults, plan).run)


def run_streams_failover(world: World, seed: int, faults: CoordinatorFaults) -> None:
    """The same with a streams group, whose coordinators die one after the other, or are deposed and do not know."""
    plan = ClusterPlan.draw(seed, _BROKER_COUNT).with_streams_group()
    world.run(ClusterScenario(world, seed, faults, plan).run)
