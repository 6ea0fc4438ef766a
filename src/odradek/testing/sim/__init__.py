"""The deterministic simulator: an event loop on virtual time, a network and hosts, ruled by one seed."""

from odradek.testing.sim.disk import SimDisk
from odradek.testing.sim.disk_faults import CrashAt, CrashKind, FailAt, FailOperations, RandomFailures
from odradek.testing.sim.entropy import SimClock, SimEntropy, stream
from odradek.testing.sim.failures import (
    DeadlockError,
    DivergenceError,
    HostCrashed,
    OutOfTimeError,
    ViolationError,
)
from odradek.testing.sim.loop import SimLoop
from odradek.testing.sim.medium import Medium
from odradek.testing.sim.network import Conditions, Network
from odradek.testing.sim.offload import OffloadDelays, SimOffload
from odradek.testing.sim.trace import Trace
from odradek.testing.sim.world import Host, HostLifetime, World

__all__ = [
    "Conditions",
    "CrashAt",
    "CrashKind",
    "DeadlockError",
    "DivergenceError",
    "FailAt",
    "FailOperations",
    "Host",
    "HostCrashed",
    "HostLifetime",
    "Medium",
    "Network",
    "OffloadDelays",
    "OutOfTimeError",
    "RandomFailures",
    "SimClock",
    "SimDisk",
    "SimEntropy",
    "SimLoop",
    "SimOffload",
    "Trace",
    "ViolationError",
    "World",
    "stream",
]
