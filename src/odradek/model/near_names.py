"""The known name that a misspelt one most likely means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")

KEYS_ALIKE: Final = 0.75
"""The least likeness for keys of settings: different ones share long parts, such as `log.retention.`."""
_ALIKE: Final = 0.6


def near_name(name: str, known: Iterable[str], *, likeness: float = _ALIKE) -> str | None:
    """Returns the known name that is most like `name`, whatever the case of letters; None where none is like it.

    `likeness`: from 0, any name, to 1, the same name.
    """
    names = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=likeness)
    return names[close[0]] if close else None


def near_hint(name: str, known: Iterable[str], *, likeness: float = _ALIKE) -> str:
    """Returns the end of an error, such as `; did you mean orders?`. Empty where no known name is near."""
    near = near_name(name, known, likeness=likeness)
    return f"; did you mean {near}?" if near else ""
