"""The simulated registry, in a world of its own for each scenario; the connection breaks now and then only where asked to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from odradek.registry import Registry
from odradek.testing.sim import World
from odradek.testing.sim.registry import SimRegistry, SimRegistryStore

T = TypeVar("T")


class SimulatedStore:
    def __init__(self) -> None:
        self._runs = 0
        self._service: SimRegistryStore
        self._opened: list[SimRegistry] = []

    def run(self, scenario: Callable[[], Awaitable[T]]) -> T:
        self._runs += 1
        with World(self._runs) as world:
            self._service = SimRegistryStore(world)

            async def main() -> T:
                outcome = await scenario()
                for registry in self._opened:
                    await registry.close()
                self._opened.clear()
                return outcome

            return world.run(main)

    async def open(self) -> Registry:
        registry = await self._service.connect(f"host-{len(self._opened)}")
        self._opened.append(registry)
        return registry

    async def expire(self, registry: Registry) -> None:
        assert isinstance(registry, SimRegistry)
        self._service.expire(registry.name)

    async def lose_connection(self, registry: Registry) -> None:
        assert isinstance(registry, SimRegistry)
        self._service.drop_connection(registry.name)


@contextmanager
def stores(directory: Path) -> Iterator[SimulatedStore]:
    yield SimulatedStore()
