"""Where Odradek may answer otherwise than Kafka, and why. Nothing else may differ.

A place is a pattern over `script/step: path`, as the test prints it; `*` stands for anything, `[` for `[[]`. A line
that nothing needs any more fails the test as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol


class Differs(Protocol):
    """What two brokers said at one place."""

    @property
    def where(self) -> str: ...
    @property
    def kafka(self) -> Any: ...
    @property
    def here(self) -> Any: ...


_ANY: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    where: str
    why: str
    here: Any = _ANY
    """What Odradek answers there; anything when not given."""

    def fits(self, difference: Differs) -> bool:
        return self.here is _ANY or bool(difference.here == self.here)


ALLOWED: Final[tuple[Allowed, ...]] = ()
