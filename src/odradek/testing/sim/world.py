"""A simulated world: one loop, one network, and hosts that live and die.

A `Host` is a machine with a disk. Each `boot` gives it a new life: a mount of the disk, an interface on the
network, a clock, a thread pool and the tasks that it spawns. `crash` ends that life from one instant to the
next: disk and network are revoked FIRST, then the tasks are cancelled, so that whatever their `finally`
blocks try to tidy up, no byte of it reaches the disk or a peer.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any, Self, TypeVar

from odradek.runtime.descriptors import UNLIMITED
from odradek.runtime.ports import Runtime
from odradek.testing.guarded_disk import GuardedDisk
from odradek.testing.sim.disk import SimDisk
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import SimClock, SimEntropy, stream
from odradek.testing.sim.failures import HostCrashed, ViolationError
from odradek.testing.sim.loop import SimLoop
from odradek.testing.sim.medium import Medium
from odradek.testing.sim.network import CURRENT, Conditions, Interface, Network, NetworkHost
from odradek.testing.sim.offload import OffloadDelays, SimOffload, baton_locks, give_way
from odradek.testing.sim.trace import Trace, events_into

T = TypeVar("T")
_CANCEL_ROUNDS_MAX = 100
_FEW = replace(UNLIMITED, readers=2, writers=8)
"""A small number of descriptors, so that logs share them in every run. Connections do not belong to the
simulated disk."""
_ERRORS_SHOWN = 5


class HostLifetime:
    """The parts of one boot of a host; all of them end at the crash."""

    def __init__(self, host: Host, number: int, faults: Sequence[DiskFault]) -> None:
        world = host.world
        self.host = host
        self.name = f"{host.name}/{number}"
        self.interface: Interface = world.network.attach(host.machine)
        self.clock = host.clock
        self.disk = SimDisk(
            host.medium,
            rng=stream(world.seed, f"disk {self.name}"),
            trace=world.trace,
            now_ms=self.clock.wall_ms,
            faults=faults,
            on_crash=self._disk_crashed,
            on_point=self._at_point,
        )
        self.offload = SimOffload(
            world.loop, stream(world.seed, f"offload {self.name}"), delays=host.offload_delays
        )
        self.runtime = Runtime(
            clock=self.clock,
            entropy=SimEntropy(stream(world.seed, f"entropy {self.name}")),
            disk=GuardedDisk(self.disk),
            offload=self.offload,
            descriptors=_FEW,
            boot_id=f"{host.name}, {host.power_loss_count} power losses",
        )
        self._stalls = stream(world.seed, f"stalls {self.name}")
        self.tasks: dict[asyncio.Task[object], None] = {}
        self.crashed: asyncio.Future[CrashKind] = world.loop.create_future()

    @property
    def is_alive(self) -> bool:
        return self.interface.is_alive

    def crash(self, kind: CrashKind) -> None:
        self.disk.crash(kind)

    @property
    def is_paused(self) -> bool:
        return self.host.world.loop.is_paused(self.interface)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does: its kernel still answers, and time passes."""
        if self.is_alive:
            self.host.world.trace.note("paused", self.name)
            self.host.world.loop.pause(self.interface)

    def resume(self) -> None:
        if self.is_paused:
            self.host.world.trace.note("resumed", self.name)
            self.host.world.loop.resume(self.interface)

    def _at_point(self) -> None:
        """A worker waits its turn; the loop itself is held up for as long as the disk takes."""
        if not give_way() and self.host.disk_stall_s:
            self.host.world.loop.stall(self._stalls.uniform(0.0, self.host.disk_stall_s))

    def adopt(self, task: asyncio.Task[object]) -> None:
        """Have the task die with this life."""
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))

    def _disk_crashed(self, kind: CrashKind) -> None:
        """The disk is revoked; now the network, then the tasks. It may be a worker thread that died."""
        world = self.host.world
        world.trace.note("host crashed", self.name, kind.value)
        self.host.power_loss_count += kind is CrashKind.POWER_LOSS
        world.network.detach(self.interface, power_lost=kind is CrashKind.POWER_LOSS)
        self.crashed.set_result(kind)
        world.loop.resume(self.interface)
        world.loop.call_soon(self._cancel_tasks, _CANCEL_ROUNDS_MAX)

    def _cancel_tasks(self, rounds_left: int) -> None:
        """Cancel until none is left: a task may catch its first cancellation and wait for something else."""
        for task in self.tasks:
            task.cancel()
        if self.tasks and rounds_left:
            self.host.world.loop.call_soon(self._cancel_tasks, rounds_left - 1)


class Host:
    """A machine with a disk that outlives its crashes."""

    def __init__(self, world: World, name: str, *, capacity_bytes: int | None) -> None:
        self.world = world
        self.name = name
        self.machine: NetworkHost = world.network.add_machine(name)
        self.medium = Medium(capacity_bytes=capacity_bytes)
        self.clock = SimClock(world.loop.time)
        self.offload_delays = OffloadDelays()
        self.disk_stall_s = 0.0
        """The longest that an operation of the disk holds up the event loop when made on it."""
        self._life: HostLifetime | None = None
        self._life_count = 0
        self.power_loss_count = 0

    @property
    def address(self) -> str:
        return self.machine.address

    @property
    def life(self) -> HostLifetime:
        """The current life."""
        if self._life is None:
            raise RuntimeError(f"{self.name} was never booted")
        return self._life

    @property
    def current(self) -> HostLifetime | None:
        """The life of last boot, if there was one."""
        return self._life

    def boot(self, *, faults: Sequence[DiskFault] = ()) -> HostLifetime:
        """Start a new life; the last one must have ended."""
        if self._life is not None and self._life.is_alive:
            raise RuntimeError(f"{self.name} is running")
        self._life_count += 1
        self._life = HostLifetime(self, self._life_count, faults)
        self.world.began(self._life)
        return self._life

    def crash(self, kind: CrashKind) -> None:
        self.life.crash(kind)

    def spawn(self, work: Coroutine[object, None, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run `work` as this host's: its connections leave from here, its tasks die with the current life."""
        context = copy_context()
        context.run(CURRENT.set, self.life.interface)
        return self.world.loop.create_task(work, name=name, context=context)


class World:
    """The simulated world of one seed: its loop, network and hosts. Use it as a context manager: leaving it ends every
    thread and task."""

    def __init__(
        self,
        seed: object,
        *,
        keep_trace: bool = False,
        conditions: Conditions | None = None,
        seconds_max: float = 3600.0,
        steps_max: int = 20_000_000,
    ) -> None:
        self.seed = seed
        self.trace = Trace(keep=keep_trace)
        self.loop = SimLoop(stream(seed, "timers"), seconds_max=seconds_max, steps_max=steps_max)
        self.trace.timed_by(self.loop.time)
        self.loop.on_task = self._adopt
        self.loop.set_exception_handler(self._unhandled)
        self.network = Network(self.loop, stream(seed, "network"), trace=self.trace, conditions=conditions)
        self.lives: list[HostLifetime] = []
        self._lives_by_interface: dict[Interface | None, HostLifetime] = {}
        self.errors: list[str] = []
        """The errors that reached the loop's exception handler, without those that `excuse` accepts."""
        self.excuse: Callable[[BaseException], bool] = lambda error: False
        self._dependencies = ExitStack()

    def host(self, name: str, *, capacity_bytes: int | None = None) -> Host:
        return Host(self, name, capacity_bytes=capacity_bytes)

    def began(self, life: HostLifetime) -> None:
        self.lives.append(life)
        self._lives_by_interface[life.interface] = life

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run `main()` to its end, then raise what no one handled. The garbage collector waits:
        it has no seed.
        """

        async def body() -> T:
            return await main()

        collecting = gc.isenabled()
        gc.disable()
        try:
            value = self.loop.run_until_complete(body())
        finally:
            if collecting:
                gc.enable()
        if self.errors:
            shown = "\n".join(self.errors[:_ERRORS_SHOWN])
            raise ViolationError(f"{len(self.errors)} errors that no one handled:\n{shown}")
        return value

    def _adopt(self, task: asyncio.Task[object], context: Context) -> None:
        life = self._lives_by_interface.get(context.get(CURRENT))
        if life is not None:
            life.adopt(task)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._unexpected(str(context.get("message")), context.get("exception"))

    def _unexpected(self, where: str, error: BaseException | None) -> None:
        if isinstance(error, HostCrashed | asyncio.CancelledError) or (error and self.excuse(error)):
            self.trace.remark(f"excused: {error!r}")
        else:
            self.errors.append(f"{self.loop.time():.6f} s: {where}: {error!r}")

    def __enter__(self) -> Self:
        self._dependencies.enter_context(baton_locks())
        self._dependencies.enter_context(events_into(self.trace, self._unexpected))
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            self.close()
        finally:
            self._dependencies.close()

    def close(self) -> None:
        """End everything, as if every host were killed now."""
        for life in self.lives:
            life.crash(CrashKind.PROCESS_KILL)
            life.offload.close()
        tasks = sorted(asyncio.all_tasks(self.loop), key=lambda task: task.get_name())
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.allow_more_steps(_CANCEL_ROUNDS_MAX * 1000)
            self.loop.run_until_complete(_settle(tasks))
        self.loop.close()
        self.trace.stop_clock()


async def _settle(tasks: Sequence[asyncio.Task[object]]) -> None:
    for _ in range(_CANCEL_ROUNDS_MAX):
        if all(task.done() for task in tasks):
            return
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
