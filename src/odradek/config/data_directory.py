"""The default data directory, and paths of data directories."""

from __future__ import annotations

import os
from collections.abc import Mapping


def default_data_directory(environ: Mapping[str, str] | None = None) -> str:
    """Returns `$XDG_DATA_HOME/odradek`, which is `~/.local/share/odradek` unless the user moved it.

    Not the working directory: a broker that forgets its data because it was started from elsewhere loses a
    user's trust. Not /tmp, Kafka's choice: it is emptied at reboot. XDG is where Python's other tools
    keep what belongs to a user.
    """
    values = os.environ if environ is None else environ
    root = values.get("XDG_DATA_HOME", "")
    if not os.path.isabs(root):  # the XDG specification: a relative path must be ignored
        root = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(root, "odradek")


def absolute_directory(path: str) -> str:
    """Returns the absolute path that a user means: `~` is home, and a relative path starts where the broker is started."""
    return os.path.abspath(os.path.expanduser(path))
