"""What a broker may say when its disk answers errors."""

from __future__ import annotations

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.registry import RegistryError


def is_disk_trouble(outcome: object) -> bool:
    """Whether starting or stopping ended in a way that a failing disk excuses."""
    if isinstance(outcome, KafkaError):
        return outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
    return isinstance(outcome, ConfigError | RegistryError | OSError)
