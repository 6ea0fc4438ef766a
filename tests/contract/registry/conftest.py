"""How implementations of the registry plug into this suite.

Each file `implementation_NAME.py` in this directory is one. It defines

    def stores(directory: Path) -> AbstractContextManager[Store]    # `Store` below; a fresh, empty one
    MARKS: Sequence[pytest.MarkDecorator] = ()                      # optional: what to skip without, and the like

and may import `odradek`, pytest and the standard library, nothing from other tests. The tests are plain functions that hand a
coroutine function to `Store.run`, because an implementation may need an event loop of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar

import pytest

from odradek.registry import Registry

T = TypeVar("T")
_HERE = Path(__file__).parent


class Store(Protocol):
    """One coordination store, empty at first."""

    def run(self, scenario: Callable[[], Awaitable[T]]) -> T:
        """Run a scenario to its end, and close every registry that it opened. May be called again; what was stored may stay."""

    async def open(self) -> Registry:
        """A registry with a session of its own."""

    async def expire(self, registry: Registry) -> None:
        """End its session by force, without its help; returns when the store has ended it."""

    async def lose_connection(self, registry: Registry) -> None:
        """Break its connection, which comes back by itself. Does nothing where there is none."""


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"registry_contract_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _implementations() -> list[object]:
    modules = [_load(path) for path in sorted(_HERE.glob("implementation_*.py"))]
    return [
        pytest.param(
            module,
            id=Path(str(module.__file__)).stem.removeprefix("implementation_"),
            marks=getattr(module, "MARKS", ()),
        )
        for module in modules
    ]


@pytest.fixture(params=_implementations())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with request.param.stores(tmp_path) as opened:
        yield opened
