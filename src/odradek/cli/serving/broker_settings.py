"""What `serve` would run with: flags over environment over file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.files.providers import has_variable
from odradek.config.files.secret_files import OTHERS_MAY_READ, check_private
from odradek.config.listeners import format_address, parse_host_port
from odradek.config.sources import CollectedConfig, Source, collect, from_environment, from_file, from_flags
from odradek.config.unsupported import is_secret
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.cli.serving import secure as serving_secure
    from odradek.registry import shared_journal
else:
    serving_secure = lazy("odradek.cli.serving.secure")
    shared_journal = lazy("odradek.registry.shared_journal")

_PUBLIC_ENDINGS: Final = ("certificates", "certificate.chain")
"""Typed as passwords by Kafka, but no secrets."""


def gather(
    file: str | None,
    settings: Sequence[str],
    listen: str | None,
    data: str | None,
    join: str | None = None,
    secure: str | None = None,
) -> CollectedConfig:
    """ConfigError for a flag that is not KEY=VALUE, an address that is none, a file that cannot be read."""
    short = []
    if join is not None:
        short.append(Source(name="--join", values={"odradek.registry.dir": registry_of(join)}))
    if data is not None:
        short.append(Source(name="--data", values={"log.dirs": data}))
    if secure is not None:
        secured = serving_secure.secure_source(secure, listen)
        short.append(secured)
    elif listen is not None:
        address = format_address(*parse_host_port(listen))
        short.append(Source(name="--listen", values={"listeners": f"PLAINTEXT://{address}"}))
    from_path = [from_file(file)] if file is not None else []
    collected = collect(*short, from_flags(settings), from_environment(os.environ), *from_path)
    if file is not None and collected.values.get(OTHERS_MAY_READ, "").lower() != "true":
        _check_private(file, from_path[0])
    return collected


def _check_private(file: str, source: Source) -> None:
    """ConfigError when the file holds a secret, and every user of the machine can read it."""
    secret = next(
        (key for key, text in source.values.items() if _is_secret(key) and not has_variable(text)), None
    )
    if secret is not None:
        check_private(f"{file} with {secret}", file)


def _is_secret(key: str) -> bool:
    setting = BROKER_SETTINGS.get(key)
    is_password = is_secret(key) if setting is None else setting.sensitive
    return is_password and not key.endswith(_PUBLIC_ENDINGS)


def registry_of(directory: str) -> str:
    """Where the registry is that `--join` means: in a broker's data directory, or in that of several (`--brokers`).

    ConfigError where there is none: a broker that made one would be a cluster of its own, and no one would notice.
    """
    for place in (directory, os.path.join(directory, "registry")):
        if os.path.exists(os.path.join(place, shared_journal.JOURNAL_NAME)):
            return place
    raise ConfigError(
        f"--join {directory}: no broker keeps its registry there. Name the data directory of a broker that was started "
        "before, or that of `odradek serve --brokers N`"
    )
