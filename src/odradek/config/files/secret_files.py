"""Files with secrets: read if not every user of the machine can read them."""

from __future__ import annotations

import os
import stat
from typing import Final

from odradek.model.errors import ConfigError

OTHERS_MAY_READ: Final = "odradek.secret.files.readable.by.others"
"""The setting that allows it anyway."""
_FILE_BYTES_MAX: Final = 16 << 20


def read_secret_file(key: str, path: str, *, others_may_read: bool) -> bytes:
    """Returns the content. ConfigError, which begins with the key, when it cannot be read, or when every user of the machine
    can."""
    content = read_file(key, path)
    if not others_may_read:
        check_private(f"{key}={path!r}", path)
    return content


def read_file(key: str, path: str) -> bytes:
    """Returns the content of a file that may be public. ConfigError."""
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{key}={path!r} cannot be read: {error.strerror}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{key}={path!r} is larger than {_FILE_BYTES_MAX >> 20} MB")
    return content


def check_private(what: str, path: str) -> None:
    """Raises ConfigError when every user of the machine can read it."""
    if os.stat(path).st_mode & stat.S_IROTH:
        raise ConfigError(
            f"{what} is not allowed: every user of this machine can read it, and it holds a secret: chmod o-r {path}"
        )
