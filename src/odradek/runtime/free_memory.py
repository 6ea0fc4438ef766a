"""Memory that was freed and that the C library keeps for later, given back to the system."""

from __future__ import annotations


def return_free_memory() -> None:
    """Blocks for some milliseconds per 100 MB. Does nothing where the C library has no such call (it is glibc's)."""
    import ctypes  # not before it is needed: most brokers never do

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
