"""Which requests the controller serves for all brokers. Apart from `forwarding.py`, which a broker alone never imports."""

from __future__ import annotations

from typing import Final

FORWARD: Final = 10001
FORWARDED: Final = frozenset({19, 20, 30, 31, 33, 37, 43, 44, 45, 46, 49, 51, 55, 57, 64})
"""What changes the cluster, or is known to its controller alone."""
