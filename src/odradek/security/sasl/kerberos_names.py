"""Maps a Kerberos principal to a user's name by `sasl.kerberos.principal.to.local.rules`, as Kafka does.

    DEFAULT                                   ann@REALM -> ann, for principals of our own realm
    RULE:[1:$1@$0](.*@EXAMPLE)s/@.*//         ann@EXAMPLE -> ann
    RULE:[2:$1](.*)s/^/service-//L            HTTP/host@EXAMPLE -> service-http

The first rule that fits decides. `[2:` is for principals of two parts; $0 is the realm, $1 and $2 are the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError
from odradek.security.sasl.exchange import LoginRefused

RULES: Final = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL: Final = re.compile(r"([^/@]+)(?:/([^/@]+))?(?:@([^/@]+))?\Z")
_RULE: Final = re.compile(
    r"RULE:\[(?P<parts>[0-9]{1,9}):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?(?:/?(?P<case>[LU]))?\Z"
)
_PARAMETER: Final = re.compile(r"\$([0-9]{1,9})")
_ESCAPES: Final = re.compile(r"\\(.)|\$([0-9])", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalRule:
    """One rule of `sasl.kerberos.principal.to.local.rules`, for principals of `parts` parts."""

    parts: int
    format: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: str
    replaces_all: bool
    case: str

    def apply(self, realm: str, parts: list[str]) -> str | None:
        """Returns the user's name; None if the rule is not for this principal."""
        if len(parts) != self.parts:
            return None
        values = [realm, *parts]
        text = _PARAMETER.sub(lambda match: values[int(match[1])], self.format)
        if self.match is not None and self.match.fullmatch(text) is None:
            return None
        if self.pattern is not None:
            text = self.pattern.sub(self._expanded, text, count=0 if self.replaces_all else 1)
        if self.case:
            text = text.lower() if self.case == "L" else text.upper()
        return text

    def _expanded(self, match: re.Match[str]) -> str:
        """Returns the replacement as Java writes it: $1 is a group, a backslash takes what follows as it is."""
        return _ESCAPES.sub(
            lambda part: part[1] if part[1] is not None else match[int(part[2])] or "", self.replacement
        )


class LocalNames:
    """The names of local users for principals. Raises ConfigError for a rule that cannot be read."""

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        self._default_realm = default_realm
        self._rules = [_parsed(text.strip()) for text in rules]

    def of(self, principal: str) -> str:
        """LoginRefused where no rule fits, or where a rule makes what is no simple name."""
        match = _PRINCIPAL.match(principal)
        if match is None:
            raise LoginRefused(f"principal {principal!r} has not the form NAME/HOST@REALM")
        realm, parts = match[3] or self._default_realm, [part for part in match.group(1, 2) if part]
        for rule in self._rules:
            name = self._default(realm, parts) if rule is None else rule.apply(realm, parts)
            if name is None:
                continue
            if not name or "/" in name or "@" in name:
                raise LoginRefused(f"{RULES} makes {name!r} of {principal!r}, which is no simple name")
            return name
        raise LoginRefused(f"no rule of {RULES} is for {principal!r}")

    def _default(self, realm: str, parts: list[str]) -> str | None:
        return parts[0] if realm == self._default_realm else None


def _parsed(text: str) -> _LocalRule | None:
    """Parses a rule; returns None for DEFAULT."""
    if text == "DEFAULT":
        return None
    rule = _RULE.match(text)
    if rule is None:
        raise ConfigError(
            f"{RULES}: {text!r:.200} is no rule: expected DEFAULT or RULE:[2:$1](match)s/pattern/replacement/"
        )
    parts = int(rule["parts"])
    if any(int(number) > parts for number in _PARAMETER.findall(rule["format"])):
        raise ConfigError(f"{RULES}: {text!r} names a part that a principal of {parts} has not")
    try:
        match, pattern = (
            None if rule[name] is None else re.compile(rule[name]) for name in ("match", "pattern")
        )
    except re.error as error:
        raise ConfigError(f"{RULES}: {text!r} holds a pattern that cannot be read: {error}") from None
    replacement = rule["replacement"] or ""
    groups = 0 if pattern is None else pattern.groups
    if any(number and int(number) > groups for _, number in _ESCAPES.findall(replacement)):
        raise ConfigError(f"{RULES}: {text!r} names a group that its pattern has not")
    return _LocalRule(
        parts=parts,
        format=rule["format"],
        match=match,
        pattern=pattern,
        replacement=replacement,
        replaces_all=rule["all"] is not None,
        case=rule["case"] or "",
    )
