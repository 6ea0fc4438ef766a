"""Which outcomes a life may have that met a crash or a disk error."""

from __future__ import annotations

import asyncio

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.registry import RegistryError
from odradek.testing.sim.failures import HostCrashed


def is_disk_trouble(outcome: object) -> bool:
    """Whether starting or stopping ended in a way that a failing disk excuses."""
    if isinstance(outcome, KafkaError):
        return outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
    return isinstance(outcome, ConfigError | RegistryError | OSError)


def raise_unless_of_crash(outcome: object) -> None:
    """Raise what a life that crashed ended with, unless its crash or its disk explains it."""
    if isinstance(outcome, HostCrashed | asyncio.CancelledError) or is_disk_trouble(outcome):
        return
    if isinstance(outcome, BaseException):
        raise outcome
