"""The settings that `serve` runs with: flags override the environment, which overrides the file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.files.providers import has_variable
from odradek.config.files.secret_files import OTHERS_MAY_READ, check_private
from odradek.config.listening.listener_addresses import at_address
from odradek.config.listening.strictness import SourceSettings, check_not_weaker
from odradek.config.sources import (
    FLAG,
    CollectedConfig,
    Source,
    collect,
    from_environment,
    from_file,
    from_flags,
)
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
    handed_over: Source | None = None,
    brokers: int = 1,
) -> CollectedConfig:
    """Returns the settings of all sources. `handed_over`: those that a parent process gives to a broker of its own.

    ConfigError for a flag that is not KEY=VALUE, an address that is none, a file that cannot be read, and for settings that
    would guard a listener less than one of the sources demands.
    """
    sources = []
    if join is not None:
        sources.append(Source(name="--join", values={"odradek.registry.dir": registry_of(join)}))
    if data is not None:
        sources.append(Source(name="--data", values={"log.dirs": data}))
    sources += [from_flags(settings), *([handed_over] if handed_over else []), from_environment(os.environ)]
    if secure is not None:
        sources.append(serving_secure.secure_source(secure, listen, brokers=brokers))
    from_path = [from_file(file)] if file is not None else []
    collected = collect(*sources, *from_path)
    if file is not None and collected.values.get(OTHERS_MAY_READ, "").lower() != "true":
        _check_private(file, from_path[0])
    if listen is not None:
        collected.values["listeners"] = at_address(collected.values, listen)
        collected.origins["listeners"] = "--listen"
    check_not_weaker(
        [SourceSettings(name=source.name, values=source.values) for source in (*sources, *from_path)],
        collected.values,
    )
    return collected


def read_settings(descriptor: int) -> Source:
    """Reads the settings that a parent process writes to a pipe. Other users of the machine see command lines, and no pipes."""
    with open(descriptor, "rb") as pipe:
        return Source(name=FLAG, values=json.loads(pipe.read()))


def written_settings(values: Mapping[str, str]) -> bytes:
    """Returns the bytes that `read_settings` reads."""
    return json.dumps(dict(values)).encode()


def _check_private(file: str, source: Source) -> None:
    """Raises ConfigError when the file holds a secret, and every user of the machine can read it."""
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
    """Returns the path of the registry for `--join`: in a broker's data directory, or in the directory of
    several brokers (`--brokers`).

    Raises ConfigError where there is none: a broker that made one would be a cluster of its own, and no one would notice.
    """
    for place in (directory, os.path.join(directory, "registry")):
        if os.path.exists(os.path.join(place, shared_journal.JOURNAL_NAME)):
            return place
    raise ConfigError(
        f"--join {directory}: no broker keeps its registry there. Name the data directory of a broker that was started "
        "before, or the directory of `odradek serve --brokers N`"
    )
