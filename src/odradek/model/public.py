"""Names for users show where users import them from: `odradek.Consumer`, and not the module that has its code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar, get_type_hints

T = TypeVar("T", bound=Callable[..., object])


def public(package: str) -> Callable[[T], T]:
    """Decorates a class or function that users import from `package`: `help`, tracebacks, reprs and pickles
    show that name.

    Annotations of fields are resolved at once, because `typing.get_type_hints` looks for their names in `package`. A name that
    only type checkers import leaves them as they are. It is the outermost decorator of a class.
    """

    def published(value: T) -> T:
        own = vars(value).get("__annotations__") if isinstance(value, type) else None
        if own:
            value.__annotations__ = {**own, **_resolved(value, own)}
        value.__module__ = package
        return value

    return published


def _resolved(cls: object, own: dict[str, object]) -> dict[str, object]:
    try:
        hints = get_type_hints(cls, vars(sys.modules[cls.__module__]), include_extras=True)
    except NameError:
        return {}
    return {name: hint for name, hint in hints.items() if name in own}
