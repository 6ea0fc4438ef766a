"""Audit events: what was done, by whom, from where, and with which outcome; and the rules that select the
ones to keep.

Kinds of events: `change` (an administrative request), `login`, `refusal` (one operation on one resource),
`access` (reading and writing, only by rule), and `lost`, with the number of events that could not be kept. An
event names resources and settings, never values: no password, no record and no token comes into it.

Clients choose names, and may choose long ones: `AuditEvent.clipped` keeps an event below `EVENT_BYTES_MAX`.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Final

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import finite_number

AUDIT_TOPIC: Final = "__odradek_audit"
"""The topic that audit events are written to. Only super users may write or change it."""
CHANGE, LOGIN, REFUSAL, ACCESS_KIND, LOST = "change", "login", "refusal", "access", "lost"
EVENT_BYTES_MAX: Final = 8192
"""The size of a clipped event's line: the sum of the limits below, and the short fields."""
NAME_BYTES_MAX: Final = 256
"""The size of a name in JSON: the longest name of a topic fits."""
DETAIL_BYTES_MAX: Final = 1024
NAMES_MAX: Final = 20
"""The number of resources in an event."""
_ERRORS_MAX: Final = 10
_CUT: Final = "..."
_JSON_BYTES_MAX: Final = 12
"""The size of one letter: two escapes."""
_NAMES: Final = ("principal", "client", "host", "listener", "api", "operation")
_PARTS: Final = ("api", "principal", "client", "resource", "outcome", "kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One event of the audit log. `time_ms` counts from 1970. `outcome` is done, refused, failed, or asked (it was served;
    its outcome is not known)."""

    time_ms: int
    broker: int
    kind: str
    outcome: str
    principal: str = ""
    client: str = ""
    """The client id."""
    host: str = ""
    listener: str = ""
    api: str = ""
    version: int = -1
    correlation_id: int = -1
    operation: str = ""
    resources: tuple[str, ...] = ()
    """`TOPIC:orders`."""
    errors: tuple[str, ...] = ()
    """Names of Kafka's error codes."""
    detail: str = ""
    count: int = 0
    """The number of lost events, in an event that reports them."""
    cut: bool = False
    """Whether a value was too long, or there were too many."""

    def clipped(self) -> AuditEvent:
        """Returns the event, within the limits of this module."""
        within: dict[str, object] = {name: clipped(getattr(self, name)) for name in _NAMES}
        within["detail"] = clipped(self.detail, DETAIL_BYTES_MAX)
        within["resources"] = tuple(clipped(name) for name in self.resources[:NAMES_MAX])
        within["errors"] = self.errors[:_ERRORS_MAX]
        if all(getattr(self, name) == value for name, value in within.items()):
            return self
        return replace(self, **within, cut=True)  # type: ignore[arg-type]

    @property
    def held_bytes(self) -> int:
        """The memory that it takes, as if it shared nothing with others."""
        texts = (*(getattr(self, name) for name in _NAMES), self.detail, *self.resources, *self.errors)
        return sys.getsizeof(self) + sum(map(sys.getsizeof, texts))

    def line(self) -> bytes:
        """Returns one JSON object, without unknown values."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {key: value for key, value in named.items() if value not in ("", -1, (), 0)}
        return json.dumps(known, separators=(",", ":")).encode()


def clipped(text: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Returns the text; when it is longer than that as JSON, its beginning and `...`."""
    if len(text) * _JSON_BYTES_MAX <= bytes_max:
        return text
    head = text[:bytes_max]
    if len(head) == len(text) and _json_bytes(head) <= bytes_max:
        return text
    left_bytes = bytes_max - len(_CUT)
    length = bisect_right(range(len(head) + 1), left_bytes, key=lambda end: _json_bytes(head[:end])) - 1
    return head[:length] + _CUT


def _json_bytes(text: str) -> int:
    return len(json.dumps(text)) - 2


@dataclass(frozen=True, slots=True)
class AuditRule:
    """One rule: whether events that match it are kept, and which share of them."""

    keeps: bool
    patterns: Mapping[str, str]
    share: float = 1.0

    def fits(self, event: AuditEvent) -> bool:
        return all(self._fits(part, pattern, event) for part, pattern in self.patterns.items())

    def _fits(self, part: str, pattern: str, event: AuditEvent) -> bool:
        if part == "resource":
            return any(fnmatchcase(resource, pattern) for resource in event.resources)
        value: str = getattr(event, part)
        return fnmatchcase(value, pattern)


class AuditRules:
    """The rules of one broker: the first that fits decides. Without one, data access is dropped, refusals are kept with the
    share `sample`, and all else is kept."""

    def __init__(self, text: str = "", *, sample: float = 1.0) -> None:
        self._rules = parse_rules(text)
        self._sample = sample
        self._accessed = [
            rule.patterns.get("api", "*")
            for rule in self._rules
            if rule.keeps and rule.patterns.get("kind", ACCESS_KIND) == ACCESS_KIND
        ]

    def watches(self, api: str) -> bool:
        """Tells whether data access by this API may be kept."""
        return any(fnmatchcase(api, pattern) for pattern in self._accessed)

    def keeps(self, event: AuditEvent, chance: Callable[[], float]) -> bool:
        """Returns whether the rules keep an event. `chance` is drawn where only a share is kept."""
        rule = next((rule for rule in self._rules if rule.fits(event)), None)
        if rule is not None:
            share = rule.share if rule.keeps else 0.0
        elif event.kind == ACCESS_KIND:
            share = 0.0
        else:
            share = self._sample if event.kind == REFUSAL else 1.0
        return share >= 1.0 or (share > 0.0 and chance() < share)


def parse_rules(text: str) -> Sequence[AuditRule]:
    """Parses rules such as `keep api=Produce resource=TOPIC:orders* sample=0.01; drop principal=User:monitor`. The
    ConfigError for an invalid one names what is wrong."""
    rules = []
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        verb, *conditions = part.split()
        if verb not in ("keep", "drop"):
            raise _wrong(part, f"{verb!r} is not keep or drop")
        patterns: dict[str, str] = {}
        share = 1.0
        for condition in conditions:
            name, equals, value = condition.partition("=")
            if name == "sample" and verb == "keep":
                share = _share(part, value)
            elif name not in _PARTS or not equals or not value:
                raise _wrong(part, f"{condition!r} is none of {'=, '.join(_PARTS)}=, sample= (of keep)")
            else:
                patterns[name] = value
        rules.append(AuditRule(verb == "keep", patterns, share))
    return rules


def _share(part: str, value: str) -> float:
    try:
        share = finite_number(value)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise _wrong(part, f"sample={value:.80} is no share from 0 to 1")
    return share


def _wrong(part: str, what: str) -> ConfigError:
    return ConfigError(f"odradek.audit.rules: in {part!r:.80}: {what}")
