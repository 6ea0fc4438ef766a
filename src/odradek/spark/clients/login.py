"""Finds a program's brokers and its login to them outside the program's text."""

from __future__ import annotations

import os
from typing import Final

from odradek.client.settings.settings_file import connection_settings
from odradek.model.public import public

BOOTSTRAP: Final = "ODRADEK_BOOTSTRAP"
CLIENT_CONFIG: Final = "ODRADEK_CLIENT_CONFIG"


@public("odradek.spark")
def connection_options(path: str | None = None) -> dict[str, str]:
    """Returns a clients' properties file as options of `format("odradek")`, and of `Streams`, for connecting. `path`: by
    default what the variable ODRADEK_CLIENT_CONFIG names; without it, no login. The brokers come from ODRADEK_BOOTSTRAP, if
    it is set.

    `odradek pipelines serve --command-config FILE` sets both variables for the programs that it runs. ConfigError for a file
    that cannot be read, and for one with secrets that others may read.
    """
    chosen = path or os.environ.get(CLIENT_CONFIG)
    settings = {} if chosen is None else connection_settings(chosen, CLIENT_CONFIG if path is None else path)
    servers = os.environ.get(BOOTSTRAP)
    brokers = {} if servers is None else {"bootstrap.servers": servers}
    return {f"kafka.{name}": value for name, value in {**brokers, **settings}.items()}
