"""Requests that the controller serves for all brokers. Not in `forwarding.py`, which a single broker never imports."""

from __future__ import annotations

from typing import Any, Final

from odradek.protocol import APIS

FORWARD: Final = 10001
FORWARDED: Final = frozenset(api.key for api in APIS.values() if api.forwarded)
_READS: Final = frozenset({46, 55})
"""ListPartitionReassignments, DescribeQuorum."""
CHANGES: Final = FORWARDED - _READS
"""Keys of the APIs that change the cluster, or answer that there is nothing to change."""
_ALTER_CONFIGS: Final = (33, 44)
_BROKER_LOGGER: Final = 8


def is_local(api_key: int, request: Any) -> bool:
    """Tells whether a request of these APIs is only about this broker after all: about its loggers."""
    return api_key in _ALTER_CONFIGS and all(
        resource.resource_type == _BROKER_LOGGER for resource in request.resources
    )
