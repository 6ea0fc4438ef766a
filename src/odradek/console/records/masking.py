"""Rules that hide parts of records on the server, before anything of a page sees them. Pure.

A masked part is replaced by the same sign for every content, also for null, so neither equality nor length shows. Searches
test the masked record: a filter finds only what a reader sees. A value with a rule about fields is written again as JSON
from what was parsed, so a name that comes twice or is escaped hides nothing. A value that is not JSON, or is too large to
parse, is hidden whole.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.console.records.filtering import NO_JSON, FieldPath, json_of, parse_path
from odradek.dead_letters.dialects import DIALECTS
from odradek.model.errors import ConfigError

MASK: Final = "•••"
_MASK_BYTES: Final = MASK.encode()
FILE_BYTES_MAX: Final = 1 << 20
RULES_MAX: Final = 1_000
TOPICS_KEPT: Final = 10_000
"""The topics whose rules are remembered; names come from headers of strangers, too."""
_TEXT_LISTS: Final = ("topics", "fields", "names", "headers")
_SWITCHES: Final = ("key", "value")
_ORIGIN_HEADERS: Final = frozenset(dialect.topic for dialect in DIALECTS if dialect.topic)
_ERROR_HEADERS: Final = frozenset(
    name.lower() for dialect in DIALECTS for name in (dialect.message, dialect.stacktrace) if name
)
"""The texts of a dead letter's exception often quote the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRule:
    """The parts of records that are hidden, in topics whose names match one of the patterns."""

    topics: tuple[str, ...]
    fields: tuple[FieldPath, ...] = ()
    """Paths in values that are JSON."""
    names: frozenset[str] = frozenset()
    """Names of fields at any depth of a value, in lower case."""
    headers: tuple[str, ...] = ()
    """Patterns of header names, in lower case."""
    key: bool = False
    value: bool = False

    def is_about(self, topic: str) -> bool:
        """Returns whether the rule holds for records of a topic, without regard to case."""
        return any(fnmatchcase(topic.lower(), pattern.lower()) for pattern in self.topics)


class RecordMasks:
    """The rules of a console. Without rules every record stays as it is."""

    def __init__(self, rules: Sequence[MaskRule] = ()) -> None:
        self._rules = tuple(rules)
        self._of_topic: Callable[[str], tuple[MaskRule, ...]] = lru_cache(TOPICS_KEPT)(self._matching)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def hides(self, topic: str) -> bool:
        """Returns whether a rule is about a topic of this name."""
        return bool(self._rules) and bool(self._of_topic(topic))

    def concerns(self, record: ConsumerRecord) -> bool:
        """Returns whether a rule is about the record's topic, or the topic that a dead letter came from."""
        return bool(self._rules) and bool(self._of_record(record))

    def masked(self, record: ConsumerRecord, decoded: bytes | None = None) -> ConsumerRecord:
        """Returns the record as it may be seen. `decoded`: its value as JSON, where a schema describes it."""
        rules = self._of_record(record) if self._rules else ()
        if not rules:
            return record
        patterns = [pattern for rule in rules for pattern in rule.headers]
        return record._replace(
            key=_MASK_BYTES if any(rule.key for rule in rules) else record.key,
            value=_masked_value(rules, record.value, decoded),
            headers=tuple(
                (name, _MASK_BYTES if _is_hidden(name.lower(), patterns) else content)
                for name, content in record.headers
            ),
        )

    def _matching(self, topic: str) -> tuple[MaskRule, ...]:
        return tuple(rule for rule in self._rules if rule.is_about(topic))

    def _of_record(self, record: ConsumerRecord) -> tuple[MaskRule, ...]:
        rules = self._of_topic(record.topic)
        for name, content in record.headers:
            if name in _ORIGIN_HEADERS and content is not None:
                rules += self._of_topic(content[:_TOPIC_BYTES_MAX].decode(errors="replace"))
        return rules


_TOPIC_BYTES_MAX: Final = 249


def _is_hidden(name: str, patterns: Sequence[str]) -> bool:
    return name in _ERROR_HEADERS or any(fnmatchcase(name, pattern) for pattern in patterns)


def _masked_value(rules: Iterable[MaskRule], value: bytes | None, decoded: bytes | None) -> bytes | None:
    paths: list[FieldPath] = []
    names: set[str] = set()
    for rule in rules:
        if rule.value:
            return _MASK_BYTES
        paths += rule.fields
        names |= rule.names
    if value is None or not (paths or names):
        return value
    document = json_of(value if decoded is None else decoded)
    if document is NO_JSON:
        return _MASK_BYTES
    try:
        root = [document]
        for path in paths:
            _hide(root, (0, *path))
        if names:
            _hide_names(root, names)
        return json.dumps(root[0], ensure_ascii=False).encode(errors="replace")
    except (ValueError, RecursionError):
        return _MASK_BYTES


def _hide(root: Sequence[object], path: FieldPath) -> None:
    """Replaces what is at the path, in place: every place, however many there are."""
    nodes: list[Any] = [root]
    for step in path[:-1]:
        nodes = [node[at] for node in nodes for at in _places(node, step)]
    for node in nodes:
        for at in _places(node, path[-1]):
            node[at] = MASK


def _places(node: object, step: str | int | None) -> Iterable[object]:
    if isinstance(node, dict):
        if step is None:
            return list(node)
        return (str(step),) if str(step) in node else ()
    if isinstance(node, list):
        if step is None:
            return range(len(node))
        return (step,) if isinstance(step, int) and step < len(node) else ()
    return ()


def _hide_names(root: Sequence[object], names: set[str]) -> None:
    """Replaces every member with one of the names, in place."""
    nodes: list[Any] = [root]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            for name, child in node.items():
                if name.lower() in names:
                    node[name] = MASK
                elif isinstance(child, dict | list):
                    nodes.append(child)
        else:
            nodes += [child for child in node if isinstance(child, dict | list)]


def read_masks(path: Path) -> RecordMasks:
    """Reads the rules of a TOML file. Raises ConfigError, which names the file and the rule."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: rules of masks have at most {FILE_BYTES_MAX} bytes")
        tables = tomllib.loads(content.decode())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot read the rules of masks: {error}") from error
    rules = tables.pop("mask", None)
    if tables or not isinstance(rules, list) or not 0 < len(rules) <= RULES_MAX:
        raise ConfigError(f"{path}: expected one to {RULES_MAX} tables [[mask]], and nothing else")
    return RecordMasks([_rule(f"{path}: mask {number}", table) for number, table in enumerate(rules, 1)])


def _rule(where: str, table: object) -> MaskRule:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table [[mask]]")
    unknown = sorted(set(table) - {*_TEXT_LISTS, *_SWITCHES})
    if unknown:
        known = ", ".join((*_TEXT_LISTS, *_SWITCHES))
        raise ConfigError(f"{where}: {unknown[0]!r:.80} is unknown: expected {known}")
    texts = {name: _texts(where, name, table) for name in _TEXT_LISTS}
    for name in _SWITCHES:
        if not isinstance(table.get(name, False), bool):
            raise ConfigError(f"{where}: {name} is true or false")
    if not texts["topics"]:
        raise ConfigError(f'{where}: name the topics, such as topics = ["payments-*"]')
    rule = MaskRule(
        topics=texts["topics"],
        fields=tuple(_path(where, text) for text in texts["fields"]),
        names=frozenset(name.lower() for name in texts["names"]),
        headers=tuple(name.lower() for name in texts["headers"]),
        key=table.get("key", False),
        value=table.get("value", False),
    )
    if not (rule.fields or rule.names or rule.headers or rule.key or rule.value):
        raise ConfigError(f"{where}: it hides nothing: set fields, names, headers, key or value")
    return rule


def _texts(where: str, name: str, table: Mapping[str, object]) -> tuple[str, ...]:
    texts = table.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"{where}: {name} is a list of texts that are not empty")
    return tuple(texts)


def _path(where: str, text: str) -> FieldPath:
    try:
        path = parse_path(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if ".." in text or "*" in path:
        raise ConfigError(
            f"{where}: {text!r:.80}: [*] is every element or member; for a name at any depth, use names"
        )
    return path
