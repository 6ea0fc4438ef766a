"""Maps the name in a client's certificate to its principal by `ssl.principal.mapping.rules` (KIP-371). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.model.errors import ConfigError
from odradek.security.principals import ANONYMOUS, USER

_KEY: Final = "ssl.principal.mapping.rules"
_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|\Z)", re.DOTALL)
_GROUP: Final = re.compile(r"\$([0-9])")
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""OpenSSL's names of the attributes that RFC 2253 has names for."""
_NUMBERS: Final = {
    "emailAddress": "1.2.840.113549.1.9.1",
    "serialNumber": "2.5.4.5",
    "title": "2.5.4.12",
    "givenName": "2.5.4.42",
    "surname": "2.5.4.4",
}
_IA5: Final = 0x16
_PRINTABLE: Final = 0x13
_SPECIAL: Final = frozenset(',+"\\<>;')


@dataclass(frozen=True, slots=True)
class MappingRule:
    """A pattern for the whole name, and what takes its place. Without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Returns the new name, or None where the rule does not fit."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        mapped = _GROUP.sub(lambda number: match[int(number[1])] or "", self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Returns the rules of the text in order. Raises ConfigError for a rule that cannot be read."""
    rules: list[MappingRule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(
                f"{_KEY}={text[position:]!r} is not allowed: expected DEFAULT or RULE:PATTERN/REPLACEMENT/[L|U]"
            )
        rules.append(MappingRule() if match[1] else _rule(match))
        position = match.end()
    return tuple(rules) or (MappingRule(),)


def _rule(match: re.Match[str]) -> MappingRule:
    try:
        pattern = re.compile(match[2].replace("\\/", "/"))
    except re.error as error:
        raise ConfigError(f"{_KEY}: the pattern {match[2]!r} is not allowed: {error}") from None
    replacement = match[3].replace("\\/", "/")
    used = [int(number) for number in _GROUP.findall(replacement)]
    if used and max(used) > pattern.groups:
        raise ConfigError(f"{_KEY}: {replacement!r} names a group that the pattern {match[2]!r} has not")
    return MappingRule(pattern, replacement, match[4])


def principal_of(certificate: Mapping[str, Any] | None, rules: Sequence[MappingRule]) -> str | None:
    """Returns the principal of a verified certificate in `ssl`'s form; ANONYMOUS without one, and None if no rule fits."""
    if not certificate:
        return ANONYMOUS
    name = distinguished_name(certificate.get("subject", ()))
    for rule in rules:
        mapped = rule.apply(name)
        if mapped is not None:
            return USER + mapped
    return None


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Returns the name in the form of RFC 2253 and Java, the last part first: `CN=alice,OU=people,O=example`."""
    parts = ["+".join(_attribute(name, value) for name, value in group) for group in subject]
    return ",".join(reversed(parts))


def _attribute(name: str, value: str) -> str:
    short = _SHORT.get(name)
    if short is not None:
        return f"{short}={_escaped(value)}"
    tag = _IA5 if name == "emailAddress" else _PRINTABLE
    encoded = value.encode()
    if name in _NUMBERS and len(encoded) < 128:
        return f"{_NUMBERS[name]}=#{bytes((tag, len(encoded))).hex()}{encoded.hex()}"
    return f"{_NUMBERS.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = "".join("\\" + character if character in _SPECIAL else character for character in value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return text
