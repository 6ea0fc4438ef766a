"""Who carries out the strikes of a plan against a simulated cluster, finding out at that moment whom they hit.

Each strike draws from a generator of its own, named by its text: leaving one out of a plan does not change the others.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from tests.simulation.cluster.faults import ClusterFaults, Strike
from tests.simulation.cluster.keeper import ClusterKeeper, gather_all
from tests.simulation.cluster.view import ClusterView

from odradek.cluster.image import TopicImage
from odradek.storage.files.naming import parse_partition_directory
from odradek.testing.sim.disk_faults import GROWING, SYNCS, WRITES, CrashAt, CrashKind, DiskFault, FailAt
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.medium import Folder, Inode, Medium
from odradek.testing.sim.registry import RegistryConditions, SimRegistryStore
from odradek.testing.sim.world import Host, World

_POINTS: Final = {
    "write": (WRITES, ".log"),
    "sync": (SYNCS, ""),
    "create": (frozenset({"create"}), ".log"),
    "rename": (frozenset({"rename"}), ""),
}
_ROTTEN: Final = (".log", ".log", ".index", ".timeindex", ".snapshot")
_DATA: Final = "/data"
_ALL_FALL: Final = 0.7
_BATCH_HEAD: Final = 27
"""Up to and with its last offset delta."""
_CLOCK_MS: Final = 1_000_000
_COMING_UP_S_MAX: Final = 5.0
_STALE: Final = RegistryConditions(lag_s=(0.0, 2.0), watch_delay_s=(0.0, 0.5))
Undo = Callable[[], None]


class Links:
    """What is blocked between machines, by how many strikes."""

    def __init__(self, world: World) -> None:
        self._network = world.network
        self._counts: dict[tuple[str, str], int] = {}

    def block(self, ways: Iterable[tuple[str, str]]) -> Undo:
        blocked = list(ways)
        for way in blocked:
            self._counts[way] = self._counts.get(way, 0) + 1
            self._network.block(*way)
        return lambda: self._unblock(blocked)

    def _unblock(self, ways: Sequence[tuple[str, str]]) -> None:
        for way in ways:
            self._counts[way] -= 1
            if not self._counts[way]:
                self._network.unblock(*way)


class Nemesis:
    """`torment` runs the plan and then puts everything right again."""

    def __init__(
        self,
        world: World,
        seed: int,
        plan: ClusterFaults,
        view: ClusterView,
        registry: SimRegistryStore | None,
        clients: Sequence[Host],
    ) -> None:
        self._world = world
        self._seed = seed
        self._plan = plan
        self._view = view
        self._registry = registry
        self._clients = clients
        self._links = Links(world)
        self._rotten: ClusterKeeper | None = None
        self._forgetful: ClusterKeeper | None = None
        """Whose power has failed, if only that of one broker may."""
        self.power_fails_once = False
        self._usual = registry.conditions if registry is not None else None
        self._delay_s = world.network.conditions.delay_s
        self._step_s = view.keepers[0].host.offload_delays.step_s
        self.is_over = False
        self.on_rot: Callable[[], None] = lambda: None

    def may_lose(self, keeper: ClusterKeeper, topic: TopicImage) -> bool:
        """Whether it may be in sync, or eligible, without having all that was committed: a bit of one of its files was flipped,
        and it has not reported yet what is damaged, or may have been the only one that had it; or its power failed, and it has
        not reported yet that it may lack what was in memory."""
        if self._forgetful is keeper:
            return not self._is_heard(keeper)
        is_alone = int(topic.configs.get("min.insync.replicas", "1")) < 2
        return self._rotten is keeper and (is_alone or not self._is_heard(keeper))

    def _is_heard(self, keeper: ClusterKeeper) -> bool:
        """Whether the controller has taken this life of the broker into service."""
        image = self._view.image()
        if image is None or self._registry is None or not keeper.is_up:
            return False
        node = self._registry.tree.nodes.get(f"/brokers/ids/{keeper.broker_id}")
        return node is not None and (keeper.broker_id, node.created) in {
            (broker.broker_id, broker.epoch) for broker in image.brokers
        }

    async def torment(self) -> None:
        await gather_all(*(self._one(number, strike) for number, strike in enumerate(self._plan.strikes)))
        self._heal()

    async def _one(self, number: int, strike: Strike) -> None:
        await asyncio.sleep(strike.at_s)
        rng = stream(self._seed, f"strike {strike}")
        hit = self._view.who(strike.role, rng)
        if hit is None:
            return
        self._world.trace.note("strike", str(strike), hit.host.name)
        if strike.kind in ("roll", "restore"):
            await (self._roll(strike) if strike.kind == "roll" else self._restore(strike, hit, rng))
            return
        undo = self._begin(strike, hit, rng)
        if undo is not None:
            await asyncio.sleep(strike.for_s)
            undo()

    def _begin(self, strike: Strike, hit: ClusterKeeper, rng: Random) -> Undo | None:
        kind, _, point = strike.kind.partition("/")
        if kind in ("kill", "power"):
            self._kill(CrashKind(kind), point, strike, hit, rng)
            return None
        if kind in ("eio", "enospc", "rot", "wipe", "slowdisk"):
            return self._trouble_disk(kind, strike, hit, rng)
        if kind in ("cut", "unheard", "expire", "stale"):
            return self._trouble_registry(kind, hit)
        return self._trouble(kind, strike, hit, rng)

    def _kill(self, kind: CrashKind, point: str, strike: Strike, hit: ClusterKeeper, rng: Random) -> None:
        if strike.role == "all":
            for keeper in self._view.keepers:  # at one instant; they come back one after another
                keeper.crash(self._way_to_die(kind, keeper), strike.for_s * rng.uniform(0.1, 2.0))
        elif point:
            operations, suffix = _POINTS[point]
            hit.down_s = strike.for_s
            kind = self._way_to_die(kind, hit)
            _arm(hit, CrashAt(number=0, kind=kind, rng=rng, operations=operations, suffix=suffix))
        else:
            hit.crash(self._way_to_die(kind, hit), strike.for_s)

    def _way_to_die(self, kind: CrashKind, hit: ClusterKeeper) -> CrashKind:
        """Where the power of one broker may fail, only the processes of the others end."""
        if kind is not CrashKind.POWER_LOSS or not self.power_fails_once:
            return kind
        self._forgetful = self._forgetful or hit
        return kind if self._forgetful is hit else CrashKind.PROCESS_KILL

    def _trouble(self, kind: str, strike: Strike, hit: ClusterKeeper, rng: Random) -> Undo | None:
        life = hit.life
        assert life is not None
        match kind:
            case "restart":
                hit.restart(strike.for_s)
            case "pause":
                life.pause()
                return life.resume
            case "reset":
                self._world.network.reset_connections(life.interface)
            case "clock":
                hit.host.clock.jump_wall(rng.randint(-_CLOCK_MS, _CLOCK_MS))
            case "slownet":
                self._world.network.conditions.delay_s = (0.001, 0.3)
                return self._hurry_network
            case _:
                return self._cut(kind, hit, rng)
        return None

    def _cut(self, kind: str, hit: ClusterKeeper, rng: Random) -> Undo:
        me = hit.host.name
        brokers = [keeper.host.name for keeper in self._view.keepers if keeper is not hit]
        match kind:
            case "isolate" | "exile":  # the exile's clients still reach it
                self._cut_registry(hit)
                others = [*brokers, *(client.name for client in self._clients if kind == "isolate")]
                undo = self._links.block(
                    [(me, other) for other in others] + [(other, me) for other in others]
                )

                def let_in() -> None:
                    undo()
                    self._heal_registry(hit)

                return let_in
            case "alone":
                ways = [(me, broker) for broker in brokers] + [(broker, me) for broker in brokers]
            case "deaf":
                ways = [(broker, me) for broker in brokers]
            case "mute":
                ways = [(me, broker) for broker in brokers]
            case _:
                other = rng.choice(brokers or [me])
                ways = rng.choice(([(me, other), (other, me)], [(me, other)], [(other, me)]))
        return self._links.block(ways)

    async def _roll(self, strike: Strike) -> None:
        """Restart one after another, each once the one before it serves."""
        for keeper in self._view.keepers:
            keeper.restart(0.0)
            await asyncio.sleep(strike.for_s)
            waited_s = 0.0
            while not keeper.is_up and waited_s < _COMING_UP_S_MAX:
                await asyncio.sleep(0.1)
                waited_s += 0.1

    # -- the registry

    def _trouble_registry(self, kind: str, hit: ClusterKeeper) -> Undo | None:
        registry, name = self._registry, hit.host.name
        if registry is None:
            return None
        match kind:
            case "cut":
                self._cut_registry(hit)
                return lambda: self._heal_registry(hit)
            case "unheard":
                registry.drop_connection(name)
            case "expire":
                registry.expire(name)
            case _:
                registry.conditions = _STALE
                return self._hurry_registry
        return None

    def _cut_registry(self, hit: ClusterKeeper) -> None:
        if self._registry is not None:
            self._registry.cut_off(hit.host.name)

    def _heal_registry(self, hit: ClusterKeeper) -> None:
        if self._registry is not None:
            self._registry.heal(hit.host.name)

    def _hurry_registry(self) -> None:
        if self._registry is not None and self._usual is not None:
            self._registry.conditions = self._usual

    def _hurry_network(self) -> None:
        self._world.network.conditions.delay_s = self._delay_s

    # -- disks

    def _trouble_disk(self, kind: str, strike: Strike, hit: ClusterKeeper, rng: Random) -> Undo | None:
        host = hit.host
        match kind:
            case "slowdisk":
                host.disk_stall_s = 0.005
                host.offload_delays.step_s = (0.0, 0.3)
                return lambda: _hurry_disk(host, self._step_s)
            case "enospc":
                host.medium.capacity_bytes = host.medium.used_bytes() + rng.randint(0, 3000)
                return lambda: _give_space(host)
            case "eio":
                operations = rng.choice((SYNCS, SYNCS, GROWING))
                _arm(hit, FailAt(number=0, error=errno.EIO, operations=operations, done=rng.random()))
            case "wipe":
                self._wipe(strike, hit, rng)
            case _:
                self._rot(strike, hit, rng)
        return None

    def _wipe(self, strike: Strike, hit: ClusterKeeper, rng: Random) -> None:
        """Kill the broker and take its disk away, or the directory of one partition."""
        if not self._begin_loss(hit, strike.for_s, rng):
            return
        data = hit.host.medium.folder(_DATA)
        held = sorted(name for name in data.names if parse_partition_directory(name) is not None)
        doomed = sorted(data.names) if not held or rng.random() < 0.5 else [rng.choice(held)]
        for name in doomed:
            data.unlink(name)
        data.sync()
        self._world.trace.note("wiped", hit.host.name, len(doomed))

    async def _restore(self, strike: Strike, hit: ClusterKeeper, rng: Random) -> None:
        """Later, put back what the broker's disk is now: it was restarted in between, so its generation is an older one."""
        copy = _copied(hit.host.medium.folder(_DATA))
        hit.crash(CrashKind.PROCESS_KILL, 0.05)
        waited_s = 0.0
        while waited_s < _COMING_UP_S_MAX and (waited_s < strike.for_s or not hit.is_up):
            await asyncio.sleep(0.1)
            waited_s += 0.1
        if not self._begin_loss(hit, 0.05, rng):
            return
        data = hit.host.medium.folder(_DATA)
        data.names = copy.names
        data.sync()
        self._world.trace.note("restored", hit.host.name)

    def _begin_loss(self, hit: ClusterKeeper, down_s: float, rng: Random) -> bool:
        """Kill the broker; no second one of a run may lose anything. The others may die with it, so that it stays in sync, and
        be back later.
        """
        if self.is_over or self._rotten not in (None, hit) or not self._view.may_lose_disk(hit):
            return False
        self._rotten = hit
        self.on_rot()
        if rng.random() < _ALL_FALL:
            for keeper in self._view.keepers:
                if keeper is not hit:
                    keeper.crash(CrashKind.PROCESS_KILL, down_s + rng.uniform(0.5, 2.0))
        hit.crash(CrashKind.PROCESS_KILL, down_s)
        return True

    def _rot(self, strike: Strike, hit: ClusterKeeper, rng: Random) -> None:
        """Kill the broker and flip a bit in one of its files; no second broker of a run may lose anything so.

        Of a log, where the broker will look when it opens it, and can know that it was committed: beyond that, rot looks
        like a write that was torn.
        """
        if self._rotten not in (None, hit) or not self._view.may_rot(hit):
            return
        self._rotten = hit
        self.on_rot()
        hit.crash(CrashKind.PROCESS_KILL, strike.for_s)
        suffix = rng.choice(_ROTTEN)
        medium = hit.host.medium
        ranges = {
            path: rotting(medium, path) if suffix == ".log" else range(len(inode.cache))
            for path, inode in medium.root.files("")
            if path.endswith(suffix) and not path.split("/")[-2].startswith("__")
        }
        paths = [path for path, positions in ranges.items() if positions]
        if paths:
            path = rng.choice(paths)
            self._world.trace.note("rots", hit.host.name, path)
            medium.file(path).flip_bit(rng.choice(ranges[path]), rng.randrange(8))

    # -- the end

    def _heal(self) -> None:
        self._world.network.heal()
        self._hurry_network()
        self._hurry_registry()
        if self._registry is not None:
            self._registry.heal()
        for keeper in self._view.keepers:
            _hurry_disk(keeper.host, self._step_s)
            _give_space(keeper.host)
            if keeper.life is not None:
                keeper.life.resume()
                keeper.life.disk.faults.clear()
        self.is_over = True
        self._world.trace.note("calm")


def _copied(folder: Folder) -> Folder:
    """What a backup of it holds."""
    copy = Folder()
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            copy.link(name, _copied(node))
        else:
            file = Inode(node.modified_ms)
            file.overwrite(bytes(node.cache))
            copy.link(name, file)
    copy.sync()
    return copy


def _arm(hit: ClusterKeeper, fault: DiskFault) -> None:
    assert hit.life is not None
    hit.life.disk.faults.append(fault)


def rotting(medium: Medium, path: str) -> range:
    """Where in a log file those batches lie that are beyond the recovery point and below the checkpointed high watermark."""
    topic, _, index = path.split("/")[-2].rpartition("-")
    recovery_point = _checkpointed(medium, "/data/recovery-point-offset-checkpoint", topic, index)
    high_watermark = _checkpointed(medium, "/data/replication-offset-checkpoint", topic, index)
    content, position, start = medium.file(path).cache, 0, None
    while position + _BATCH_HEAD <= len(content):
        base_offset = int.from_bytes(content[position : position + 8], "big")
        length = int.from_bytes(content[position + 8 : position + 12], "big")
        last_offset = base_offset + int.from_bytes(content[position + 23 : position + 27], "big")
        if last_offset >= high_watermark or length <= 0:
            break
        if start is None and base_offset >= recovery_point:
            start = position
        position += 12 + length
    return range(position if start is None else start, min(position, len(content)))


def _checkpointed(medium: Medium, path: str, topic: str, index: str) -> int:
    try:
        lines = bytes(medium.file(path).platter).decode().splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return 0
    entries = [line.split() for line in lines[2:]]
    return max((int(entry[2]) for entry in entries if entry[:2] == [topic, index]), default=0)


def _hurry_disk(host: Host, step_s: tuple[float, float]) -> None:
    host.disk_stall_s = 0.0
    host.offload_delays.step_s = step_s


def _give_space(host: Host) -> None:
    host.medium.capacity_bytes = None
