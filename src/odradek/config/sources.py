"""Sources of settings (flags, the environment, a file), and which of them wins.

Flags win over the environment, the environment over the file, the file over defaults. Kafka ranks some
settings against each other (log.retention.ms over .minutes over .hours; log.dirs over log.dir): a stronger
source that sets any of such a family overrides a weaker source for the whole family, so that a flag always
wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.config.broker import BROKER_SETTINGS
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.config.files import properties as config_properties
else:
    config_properties = lazy("odradek.config.files.properties")

ENVIRONMENT_PREFIX: Final = "ODRADEK_"
RESERVED_VARIABLES: Final = frozenset(
    {"ODRADEK_BOOTSTRAP", "ODRADEK_CLIENT_CONFIG", "ODRADEK_DEBUG", "ODRADEK_PURE", "ODRADEK_NO_EXTENSION"}
)
"""Variables that are not settings: for the command line, the choice of the record engine, and the build."""
RESERVED_PREFIXES: Final = tuple(
    f"ODRADEK_{tool}_" for tool in ("TEST", "BENCH", "SIM", "INTEROP", "FAULTS", "PEER", "DEMO")
)
"""Beginnings of variables of the project's own tests and benchmarks."""

FLAG: Final = "flag"
ENVIRONMENT: Final = "environment"
DEFAULT: Final = "default"

_SEPARATE: Final = frozenset({"log.flush.scheduler.interval.ms"})
"""A fallback for another setting that has a meaning of its own too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Settings as text, by key, from one place."""

    name: str
    values: Mapping[str, str]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedConfig:
    """The values for `load_broker_config`, and the name of the source of each key."""

    values: dict[str, str]
    origins: dict[str, str]
    warnings: tuple[str, ...]


def from_flags(pairs: Iterable[str]) -> Source:
    """Reads settings from `KEY=VALUE` pairs; raises ConfigError for one without `=`."""
    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{pair!r} is not a setting: expected KEY=VALUE")
        values[key.strip()] = value
    return Source(name=FLAG, values=values)


def from_environment(environ: Mapping[str, str]) -> Source:
    """Reads settings from variables such as `ODRADEK_LOG_RETENTION_MS`: the key in capitals, with `_` for each dot."""
    spelling = {key.lower(): key for key in BROKER_SETTINGS}
    values = {}
    for variable, value in environ.items():
        name = variable.upper()
        if not name.startswith(ENVIRONMENT_PREFIX) or name in RESERVED_VARIABLES:
            continue
        if not name.startswith(RESERVED_PREFIXES):
            key = name[len(ENVIRONMENT_PREFIX) :].lower().replace("_", ".")
            own = spelling.get(f"odradek.{key}", key)  # the prefix need not be said twice
            values[spelling.get(key, own)] = value
    return Source(name=ENVIRONMENT, values=values)


def from_file(path: str) -> Source:
    """Reads settings from a `server.properties`; raises ConfigError with the file's name when it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            properties = config_properties.parse_properties(file.read())
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a properties file: it is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}, {error}") from None
    repeated = tuple(f"{path} sets {key} more than once; the last one counts" for key in properties.repeated)
    return Source(name=path, values=properties.values, warnings=repeated)


def collect(*sources: Source) -> CollectedConfig:
    """Merges sources, the strongest first."""
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    settled: set[str] = set()
    for source in sources:
        kept = {key: value for key, value in source.values.items() if _family(key) not in settled}
        for key, value in kept.items():
            values[key] = value
            origins[key] = source.name
        settled.update(_family(key) for key in source.values)
    warnings = tuple(warning for source in sources for warning in source.warnings)
    return CollectedConfig(values=values, origins=origins, warnings=warnings)


def _family(key: str) -> str:
    """Returns the last of a setting's synonyms: one name for them all."""
    setting = BROKER_SETTINGS.get(key)
    if setting is None:
        return key
    others = [other for other in setting.synonyms if other not in _SEPARATE]
    return others[-1] if others else key
