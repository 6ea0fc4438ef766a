"""Modules that are imported when something of them is used for the first time.

A broker, a command or a client starts without what only some of them need. Type checkers and the lints see a plain import:

    if TYPE_CHECKING:
        from odradek.broker.requests import large_messages
    else:
        large_messages = lazy("odradek.broker.requests.large_messages")

A package whose names are for users imports them so: `__getattr__ = lazy_names(globals(), {"package.module": ("Name",)})`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyModule:
    """A proxy of a module. It looks attributes up each time, so that a test may replace them in the
    module."""

    __slots__ = ("_lazy_module", "_lazy_name")

    def __init__(self, name: str) -> None:
        self._lazy_name = name
        self._lazy_module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        """Raises ImportError when the module is not there: the first use says it, as an import would."""
        module = self._lazy_module
        if module is None:
            module = self._lazy_module = import_module(self._lazy_name)
        return getattr(module, attribute)

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return lazy, (self._lazy_name,)

    def __repr__(self) -> str:
        return f"<lazy module {self._lazy_name}>"


def lazy(name: str) -> Any:
    """Returns the module of this name, which is not imported yet."""
    return LazyModule(name)


def lazy_names(package: dict[str, Any], where: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__` (PEP 562). `package` is its `globals()`; `where` maps each name to
    its module."""
    modules = {name: module for module, names in where.items() for name in names}

    def resolve(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(module), name)
        return value

    return resolve
