"""A file with settings for connections and logins, which `--command-config` and `ODRADEK_CLIENT_CONFIG` name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from odradek.client.settings.security_settings import LOGIN_CONFIG, OTHER_SPELLINGS, SecuritySettings
from odradek.config import sources
from odradek.config.files import providers, secret_files


def bootstrap_servers(path: str) -> str | None:
    """Returns the file's bootstrap.servers; None if it has none."""
    return sources.from_file(path).values.get("bootstrap.servers")


def connection_settings(path: str, said_by: str) -> dict[str, str]:
    """Returns the file's settings for connections, by Kafka's names; other settings are left out. Raises ConfigError, which
    names `said_by`, for a file with secrets that other users may read.
    """
    written = sources.from_file(path).values
    values = providers.resolved(written)
    values = with_java_options(values)
    known = {setting.key: setting for setting in SecuritySettings.settings.values()}
    chosen = {key: value for key, value in values.items() if key in known or key in OTHER_SPELLINGS}
    if any(
        key in known and known[key].sensitive and not providers.has_variable(written[key]) for key in chosen
    ):
        secret_files.check_private(f"{said_by}={path!r}", path)
    return chosen


def with_java_options(values: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Adds the file of login modules that KAFKA_OPTS names, as Kafka's commands do, unless the settings name one."""
    options = (os.environ if environ is None else environ).get("KAFKA_OPTS", "")
    prefix = f"-D{LOGIN_CONFIG}="
    named = [word.removeprefix(prefix) for word in _words(options) if word.startswith(prefix)]
    return {**({LOGIN_CONFIG: named[-1]} if named else {}), **values}


def _words(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:  # a quote is open: Java's own scripts cut at blanks
        return options.split()
