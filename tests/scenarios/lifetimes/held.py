"""What a process holds: how many objects of each of our types, and how much lies in the containers of each attribute."""

from __future__ import annotations

import gc
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from types import ModuleType
from typing import Any, Final

_CONTAINERS: Final = (dict, list, set, frozenset, deque, bytearray, OrderedDict)
_OURS: Final = "odradek."
_DECLARATIONS: Final = (
    "odradek.protocol.schema",
    "odradek.protocol.access",
    "odradek.protocol.acls",
    "odradek.telemetry",
)
"""What an import makes, however late it comes."""


def held() -> Counter[str]:
    """The number of objects of each of our types, "module.Class"; and for each attribute that holds a container, the sum of its
    lengths in all instances, "module.Class.attribute".

    Run it with the collector off: then a cycle that nothing refers to counts, too. What was put aside (`gc.freeze`) counts only
    where a module has it.
    """
    counts: Counter[str] = Counter()
    of_modules = _of_modules()
    known = set(map(id, of_modules))
    alive = gc.get_objects()  # before any list is made that would hold itself then
    for thing in chain(of_modules, (thing for thing in alive if id(thing) not in known)):
        cls = type(thing)
        module = cls.__module__
        if not isinstance(module, str) or not module.startswith(_OURS) or module.startswith(_DECLARATIONS):
            continue
        if isinstance(thing, Enum | ModuleType | type):
            continue
        name = f"{module}.{cls.__qualname__}"
        counts[name] += 1
        for attribute, length in _lengths(thing):
            counts[f"{name}.{attribute}"] += length
    return counts


def _of_modules() -> list[Any]:
    """Returns the values of our modules, such as caches, each once. Modules were imported before all was put aside."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_OURS)]
    values = [value for module in modules for value in vars(module).values()]
    return list({id(value): value for value in values}.values())


def _lengths(thing: Any) -> Iterator[tuple[str, int]]:
    if isinstance(thing, _CONTAINERS):
        yield "(itself)", len(thing)
    for attribute, value in _attributes(thing):
        if isinstance(value, _CONTAINERS):
            yield attribute, len(value)


def _attributes(thing: Any) -> Iterable[tuple[str, Any]]:
    try:
        yield from object.__getattribute__(
            thing, "__dict__"
        ).items()  # a lazy module would be imported by getattr
    except AttributeError:
        pass  # it has slots only
    for cls in type(thing).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{cls.__name__.lstrip('_')}{slot}" if slot.startswith("__") else slot
            try:
                yield slot, object.__getattribute__(thing, name)
            except AttributeError:
                continue  # not set
