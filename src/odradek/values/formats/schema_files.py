"""Schema files: read once, when a program is written."""

from __future__ import annotations

from pathlib import Path

from odradek.model.errors import ConfigError


def read_schema_file(path: str | Path) -> bytes:
    """Reads a file with a schema. Raises ConfigError where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the schema file {path} cannot be read: {error.strerror}") from None
