"""The levels of this process's loggers by Kafka's names, for BROKER_LOGGER (KIP-412). What is set here lasts until a restart.

`root` is the logger above all of Odradek's; the loggers of an application around an embedded broker are its own.
"""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
_ROOT_LOGGER: Final = "odradek"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def _named(level: int) -> str:
    """Returns the name of the nearest level that is not above."""
    return next((name for name, value in LEVELS.items() if level >= value), "TRACE")


def loggers() -> dict[str, str]:
    """Returns every logger and its effective level, by name."""
    manager = logging.getLogger(_ROOT_LOGGER).manager
    names = sorted(
        name
        for name, logger in manager.loggerDict.items()
        if name.startswith(f"{_ROOT_LOGGER}.") and isinstance(logger, logging.Logger)
    )
    results = {ROOT: _named(logging.getLogger(_ROOT_LOGGER).getEffectiveLevel())}
    return results | {name: _named(logging.getLogger(name).getEffectiveLevel()) for name in names}


def set_level(name: str, level: str | None) -> None:
    """Sets a logger's level; None makes it follow the logger above it. The name must be one of `loggers`."""
    logger = logging.getLogger(_ROOT_LOGGER if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])
