"""What a planted bug is. Each mutant patches the production code while a run lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

Patches = Iterator[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A planted bug. `patches` makes the patchers that plant it."""

    name: str
    mistake: str
    scenario: str
    patches: Callable[[], Patches]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Within, the code has the bug."""
        with ExitStack() as stack:
            for patcher in self.patches():
                stack.enter_context(patcher)
            yield


BANK: Final[list[Mutant]] = []
"""Each is to be found."""
ASIDE: Final[list[tuple[Mutant, str]]] = []
"""Not hunted, and why: another guard makes up for each, or only a seed in many hundreds would meet it."""


def mutant(
    mistake: str, scenario: str = "storage", *, aside: str | None = None
) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    def add(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        made = Mutant(name=patches.__name__, mistake=mistake, scenario=scenario, patches=patches)
        if aside is None:
            BANK.append(made)
        else:
            ASIDE.append((made, aside))
        return patches

    return add
