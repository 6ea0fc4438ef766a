"""Every implementation of a port, under one suite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.runtime.ports import Disk
from odradek.runtime.real import PosixDisk
from odradek.testing.sim import Medium, SimDisk, World, stream


@pytest.fixture(params=["posix", "simulated"])
def disk_and_folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and an empty directory on it."""
    if request.param == "posix":
        return PosixDisk(), str(tmp_path)
    disk = SimDisk(Medium(), rng=stream(1, "disk"), now_ms=lambda: 1_700_000_000_000)
    disk.make_directory("/data")
    return disk, "/data"


@pytest.fixture
def disk(disk_and_folder: tuple[Disk, str]) -> Disk:
    return disk_and_folder[0]


@pytest.fixture
def folder(disk_and_folder: tuple[Disk, str]) -> str:
    return disk_and_folder[1]


Main = Callable[[], Awaitable[Any]]


def _run_simulated(seed: int, main: Main) -> Any:
    with World(seed, seconds_max=600.0) as world:
        return world.run(main)


async def _bounded(main: Main) -> Any:
    return await asyncio.wait_for(main(), 30)


@pytest.fixture(params=["asyncio", "simulated-1", "simulated-2", "simulated-3"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], Any]:
    """Runs `main()` on a real loop with loopback sockets, or in a simulated world."""
    kind, _, seed = request.param.partition("-")
    if kind == "asyncio":
        return lambda main: asyncio.run(_bounded(main))
    return lambda main: _run_simulated(int(seed), main)
