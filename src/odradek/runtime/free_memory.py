"""Memory that was freed and that the C library keeps for later, given back to the system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = lazy("ctypes")


def return_free_memory() -> None:
    """Blocks for some milliseconds per 100 MB. Does nothing where the C library has no such call (it is glibc's)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
