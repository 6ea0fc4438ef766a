"""Values that are stored elsewhere (KIP-297): `${file:/etc/secrets.properties:password}` in place of the password.

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider

Kafka's three providers: of properties files, of directories whose files are the values, and of the environment. What is not
found is an error, where Kafka keeps the text: a password must not be `${...}` by mistake. What was looked up is not looked
through again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.config.files import secret_files
from odradek.config.files.properties import parse_properties
from odradek.model.errors import ConfigError

PROVIDERS: Final = "config.providers"
PREFIX: Final = PROVIDERS + "."
_VARIABLE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_JAVAS: Final = "org.apache.kafka.common.config.provider."
Lookup = Callable[[str, str], str]
"""The value of (path, key). ConfigError."""


class _Provider:
    """One of those that `config.providers` names."""

    def __init__(self, name: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._name = name
        self._environ = environ
        self._class_key = f"{PREFIX}{name}.class"
        self._others_may_read = settings.get(secret_files.OTHERS_MAY_READ, "").lower() == "true"
        prefix = f"{PREFIX}{name}.param."
        self._params = {
            key.removeprefix(prefix): text for key, text in settings.items() if key.startswith(prefix)
        }
        known: dict[str, Lookup] = {
            "FileConfigProvider": self._of_file,
            "DirectoryConfigProvider": self._of_directory,
            "EnvVarConfigProvider": self._of_environment,
        }
        class_name = settings.get(self._class_key, "").strip()
        lookup = known.get(class_name.removeprefix(_JAVAS))
        if lookup is None:
            names = ", ".join(_JAVAS + name for name in known)
            raise ConfigError(f"{self._class_key}={class_name} is not allowed: expected one of {names}")
        self.value = lookup

    def _of_file(self, path: str, key: str) -> str:
        self._check_path(path)
        text = self._text(path)
        try:
            values = parse_properties(text).values
        except ConfigError as error:
            raise ConfigError(f"{path}, {error}") from None
        if key not in values:
            raise ConfigError(f"{path} has no value for {key}")
        return values[key]

    def _of_directory(self, path: str, key: str) -> str:
        if not key or os.path.basename(key) != key or key in (os.curdir, os.pardir):
            raise ConfigError(f"{key!r} is no name of a file in {path}")
        self._check_path(path)
        return self._text(os.path.join(path, key))

    def _of_environment(self, path: str, key: str) -> str:
        pattern = self._params.get("allowlist.pattern", ".*")
        try:
            allowed = re.fullmatch(pattern, key) is not None
        except re.error as error:
            raise ConfigError(
                f"{PREFIX}{self._name}.param.allowlist.pattern is no expression: {error}"
            ) from None
        if path:
            raise ConfigError(f"write ${{{self._name}:{key}}}: the environment has no paths")
        if not allowed:
            raise ConfigError(
                f"variable {key} is not allowed by {PREFIX}{self._name}.param.allowlist.pattern"
            )
        if key not in self._environ:
            raise ConfigError(f"there is no variable {key} in the environment")
        return self._environ[key]

    def _check_path(self, path: str) -> None:
        allowed = self._params.get("allowed.paths", "")
        if not path:
            raise ConfigError(f"write ${{{self._name}:PATH:KEY}}: it names no path")
        if not allowed:
            return
        real = Path(path).resolve()
        if not any(real.is_relative_to(Path(place.strip()).resolve()) for place in allowed.split(",")):
            raise ConfigError(f"{path} is not in {PREFIX}{self._name}.param.allowed.paths")

    def _text(self, path: str) -> str:
        content = secret_files.read_secret_file(self._name, path, others_may_read=self._others_may_read)
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8 text") from None


def has_variable(text: str) -> bool:
    """Returns whether the value, or a part of it, may be stored elsewhere."""
    return _VARIABLE.search(text) is not None


def resolved(values: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the settings, with what providers have in place of `${PROVIDER:PATH:KEY}`. ConfigError names the setting, not
    the value.

    A name that is no provider's stays as it is: other parts of Kafka have variables of their own.
    """
    names = [name.strip() for name in values.get(PROVIDERS, "").split(",") if name.strip()]
    if not names:
        return dict(values)
    variables = os.environ if environ is None else environ
    providers = {name: _Provider(name, values, variables) for name in names}
    return {
        key: text if key == PROVIDERS or key.startswith(PREFIX) else _replaced(key, text, providers)
        for key, text in values.items()
    }


def refuse_variables(values: Mapping[str, str], providers: Sequence[str]) -> None:
    """Raises ConfigError for a dynamic setting with a variable of a provider: who may change settings would read files by
    it."""
    for key, text in values.items():
        if any(match[1] in providers for match in _VARIABLE.finditer(text)):
            raise ConfigError(
                f"{key} is not allowed: dynamic settings are not looked up in {PROVIDERS}; write the value"
            )


def _replaced(key: str, text: str, providers: Mapping[str, _Provider]) -> str:
    def value(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        if provider is None:
            return match[0]
        try:
            return provider.value(match[2] or "", match[3])
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None

    return _VARIABLE.sub(value, text)
