"""Pauses before retries (KIP-580): each is twice as long, up to a limit, and random, so that clients are not in step."""

from __future__ import annotations

from typing import Final

from odradek.runtime.ports import Entropy

_JITTER: Final = 0.2
_DOUBLINGS_MAX: Final = 30


class Backoff:
    """Pauses of `first_ms * 2**attempt`, at most `longest_ms`, each varied by up to 20 % either way."""

    __slots__ = ("_entropy", "_first_s", "_longest_s")

    def __init__(self, first_ms: int, longest_ms: int, entropy: Entropy) -> None:
        self._first_s = first_ms / 1000
        self._longest_s = max(longest_ms, first_ms) / 1000
        self._entropy = entropy

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait before the retry that follows failure number `attempt`, counted from 0."""
        exact = min(self._first_s * (1 << min(attempt, _DOUBLINGS_MAX)), self._longest_s)
        return exact * (1 - _JITTER + 2 * _JITTER * self._entropy.uniform())
