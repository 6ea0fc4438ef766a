"""JAAS strings, as Kafka's users have them in `sasl.jaas.config`.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

Errors name the place and never a value: values are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.model.errors import ConfigError

_TOKEN: Final = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s="\';]+)|([=;]))', re.DOTALL
)
_FILE_TOKEN: Final = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|(?://[^\n]*|/\*.*?\*/|#[^\n]*)|([^\s="\';{}]+)|([=;{}]))',
    re.DOTALL,
)
"""A token of a file, which may also have comments, which are skipped, and braces."""
Token = tuple[str, bool]
"""A token's text, and whether it is a sign."""
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_USER: Final = "user_"
_PAIR: Final = re.compile(r'\s*([A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,"]*))\s*(?:,|\Z)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """A login module and its options."""

    name: str
    """The Java class."""
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """Passwords by user of PLAIN's module, from `user_NAME="PASSWORD"`."""
        return {
            key.removeprefix(_USER): value for key, value in self.options.items() if key.startswith(_USER)
        }

    def flag(self, name: str) -> bool:
        return self.options.get(name, "").lower() == "true"


def parse_jaas(text: str, *, key: str = "sasl.jaas.config") -> LoginModule:
    """Returns the one login module of a string. Raises ConfigError, naming `key`, when it is not one."""
    what = f"{key}=(hidden) is not allowed"
    return _module(_tokens(text, what), what)


def login_module_in(text: str, section: str, what: str) -> LoginModule:
    """Returns the login module of a section in a file of Java's, `KafkaClient { MODULE required NAME="VALUE"; };`.

    ConfigError, beginning with `what`, when there is no such section with one module.
    """
    tokens = _tokens(text, what, _FILE_TOKEN)
    sections: dict[str, list[Token]] = {}
    position = 0
    while position < len(tokens):
        name, end = _word(tokens, position), position + 2
        while end < len(tokens) and tokens[end] != ("}", True):
            end += 1
        if not name or tokens[position + 1 : position + 2] != [("{", True)] or end >= len(tokens):
            raise ConfigError(
                f"{what}: expected sections, such as {section} {{ MODULE required NAME=VALUE; }};"
            )
        sections.setdefault(name, tokens[position + 2 : end])
        position = end + (2 if tokens[end + 1 : end + 2] == [(";", True)] else 1)
    if section not in sections:
        raise ConfigError(f"{what}: it has no section {section}, but {', '.join(sections) or 'none'}")
    module = _module(sections[section], f"{what}: section {section}")
    variable = next((name for name, value in module.options.items() if "${" in value), None)
    if variable is not None:
        raise ConfigError(f"{what}: option {variable} of {section} has a variable, which only Java looks up")
    return module


def _module(tokens: list[Token], what: str) -> LoginModule:
    name, flag = _word(tokens, 0), _word(tokens, 1).lower()
    if not name or flag not in _FLAGS:
        raise ConfigError(f"{what}: expected a login module and `required`")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position] != (";", True):
        option = _word(tokens, position)
        if not option or tokens[position + 1 : position + 2] != [("=", True)]:
            raise ConfigError(f"{what}: expected NAME=VALUE as option {len(options) + 1}")
        if position + 2 >= len(tokens) or tokens[position + 2][1]:
            raise ConfigError(f"{what}: option {option} has no value")
        if option in options:
            raise ConfigError(f"{what}: option {option} is given twice")
        options[option] = tokens[position + 2][0]
        position += 3
    if position >= len(tokens):
        raise ConfigError(f"{what}: a semicolon is missing at the end")
    if position + 1 < len(tokens):
        raise ConfigError(f"{what}: it holds more than one login module")
    return LoginModule(name=name, options=options)


def parse_pairs(text: str, key: str) -> dict[str, str]:
    """Parses `name=alice,password="a,b"`; raises ConfigError, naming `key`, for another text."""
    pairs: dict[str, str] = {}
    for match in _PAIR.finditer(text):
        pairs[match[1]] = _ESCAPED.sub(r"\1", match[2]) if match[2] is not None else match[3]
    if _PAIR.sub("", text).strip(" ,"):
        raise _refused(key, "expected NAME=VALUE, separated by commas")
    return pairs


def _tokens(text: str, what: str, token: re.Pattern[str] = _TOKEN) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = token.match(text, position)
        if match is None:
            raise ConfigError(
                f"{what}: it cannot be read from character {position + 1} on: is a quote missing?"
            )
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            tokens.append((_ESCAPED.sub(r"\1", quoted), False))
        elif match[3] is not None or match[4] is not None:
            tokens.append((match[3] or match[4], match[3] is None))
        position = match.end()
    return tokens


def _word(tokens: list[Token], position: int) -> str:
    if position < len(tokens) and not tokens[position][1]:
        return tokens[position][0]
    return ""


def _refused(key: str, why: str) -> ConfigError:
    return ConfigError(f"{key}=(hidden) is not allowed: {why}")
