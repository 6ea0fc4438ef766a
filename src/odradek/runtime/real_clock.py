"""The machine's clocks and its source of randomness."""

from __future__ import annotations

import os
import time
import uuid


class SystemClock:
    """The clocks of this machine: implements `Clock`."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # itself: every request reads it several times


class SystemEntropy:
    """The randomness of the operating system, unpredictable also after a fork: implements `Entropy`."""

    __slots__ = ()

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def uniform(self) -> float:
        return (int.from_bytes(os.urandom(7), "little") >> 3) * 2.0**-53
