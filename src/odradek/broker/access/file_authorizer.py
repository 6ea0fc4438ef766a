"""An authorizer of rules in a local file, as a policy agent would ship them: an example for `authorizer.class.name`.

    authorizer.class.name=odradek.broker.access.file_authorizer.FileAuthorizer
    odradek.authorizer.file=/etc/odradek/rules.json

The file is a JSON list. The first rule that fits decides; where none fits, the answer is no:

    [{"effect": "allow", "principals": ["User:etl-*"], "operations": ["READ", "DESCRIBE"], "resources": ["TOPIC:orders-*"]},
     {"effect": "deny",  "principals": ["*"]}]

Each part is a list of shell patterns (`*`, `?`, `[a-z]`), and one that is left out fits everything. A closed topic
(`odradek.security.closed_topics`) is opened by a pattern of resources that begins with its name, or with a prefix that is
meant for it. The file is looked at for each question, and read again when it has changed; one that cannot be read keeps the
rules from before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Final

from odradek.model.errors import ConfigError
from odradek.protocol.acls import AclOperation, AclResourceType, PatternType
from odradek.security.acls import AclPattern
from odradek.security.authorizer import closed_suffixes
from odradek.security.closed_topics import CLOSED_SUFFIXES, is_closed, means
from odradek.telemetry import events

FILE_KEY: Final = "odradek.authorizer.file"
_log = events.get("security")
_REMEMBERED_MAX: Final = 100_000
_WILD: Final = re.compile(r"[*?\[]")
_PARTS: Final = ("principals", "hosts", "operations", "resources")


@dataclass(frozen=True, slots=True)
class FileRule:
    allows: bool
    patterns: Mapping[str, re.Pattern[str] | None]

    resources: tuple[str, ...] = ()
    """The patterns of resources as they are written."""

    def fits(self, query: Mapping[str, str]) -> bool:
        return all(
            pattern is None or pattern.match(query[part]) is not None
            for part, pattern in self.patterns.items()
        )

    def means_topic(self, topic: str) -> bool:
        """Tells whether one of the patterns names the closed topic, or begins with letters that are meant for it."""
        for written in self.resources:
            kind, _, name = written.partition(":")
            literal = _WILD.split(name, maxsplit=1)[0]
            how = PatternType.LITERAL if literal == name else PatternType.PREFIXED
            if kind == "TOPIC" and literal and means(AclPattern(AclResourceType.TOPIC, literal, how), topic):
                return True
        return False


class FileAuthorizer:
    """An authorizer that decides by the rules of a local file; see `odradek.security.authorizer.Authorizer` for its methods."""

    def __init__(self) -> None:
        self._path = Path()
        self._rules: list[FileRule] = []
        self._seen: tuple[int, int] = (0, 0)
        self._closed_suffixes: Sequence[str] = CLOSED_SUFFIXES
        self._remembered: dict[tuple[str, str, int, int, str], bool] = {}

    def configure(self, settings: Mapping[str, str]) -> None:
        path = settings.get(FILE_KEY, "")
        if not path:
            raise ConfigError(f"{FILE_KEY} is not set: name the file with the rules")
        self._path = Path(path)
        self._closed_suffixes = closed_suffixes(settings)
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{FILE_KEY}={path}: {error}") from error

    def may(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        self._check_file()
        key = principal, host, operation, resource_type, name
        known = self._remembered.get(key)
        if known is None:
            query = {
                "principals": principal,
                "hosts": host,
                "operations": operation.name,
                "resources": f"{resource_type.name}:{name}",
            }
            is_topic = resource_type is AclResourceType.TOPIC
            known = self._allows(query, is_topic and is_closed(name, operation, self._closed_suffixes))
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = known
        return known

    def _allows(self, query: Mapping[str, str], needs_name: bool) -> bool:
        """Returns whether the first rule that fits allows it. A closed topic is opened by a rule whose pattern of resources
        names it."""
        rule = next((rule for rule in self._rules if rule.fits(query)), None)
        if rule is None or not rule.allows:
            return False
        return not needs_name or rule.means_topic(query["resources"].partition(":")[2])

    def may_anywhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Tells whether a rule could allow some name; the rules' patterns of names are ignored."""
        self._check_file()
        return any(
            rule.allows
            and all(
                pattern is None or pattern.match(value) is not None
                for pattern, value in (
                    (rule.patterns["principals"], principal),
                    (rule.patterns["hosts"], host),
                    (rule.patterns["operations"], operation.name),
                )
            )
            for rule in self._rules
        )

    def _check_file(self) -> None:
        """Tells whether the file has changed: one system call."""
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_size) != self._seen:
                self._read()
        except (OSError, ValueError) as error:
            _log.error("authorizer_file_not_read", path=str(self._path), reason=str(error))

    def _read(self) -> None:
        status = self._path.stat()
        rules = json.loads(self._path.read_text(encoding="utf-8"))
        if not isinstance(rules, list):
            raise ValueError("the file is no JSON list of rules")
        self._rules = [_rule(number, entry) for number, entry in enumerate(rules, start=1)]
        self._seen = status.st_mtime_ns, status.st_size
        self._remembered.clear()


def _rule(number: int, entry: object) -> FileRule:
    if not isinstance(entry, dict) or entry.get("effect") not in ("allow", "deny"):
        raise ValueError(f"rule {number} has no effect: write allow or deny")
    unknown = entry.keys() - {"effect", *_PARTS}
    if unknown:
        raise ValueError(f"rule {number} has an unknown part {', '.join(sorted(unknown))}")
    return FileRule(
        allows=entry["effect"] == "allow",
        patterns={part: _pattern(number, part, entry.get(part)) for part in _PARTS},
        resources=tuple(entry.get("resources") or ()),
    )


def _pattern(number: int, part: str, configured: object) -> re.Pattern[str] | None:
    if configured is None:
        return None
    if not isinstance(configured, list) or not all(isinstance(pattern, str) for pattern in configured):
        raise ValueError(f"rule {number}: {part} is no list of patterns")
    return re.compile("|".join(translate(pattern) for pattern in configured) or r"(?!)")
