"""Which records a search means: text, key, header, and a path into JSON. Pure.

A path is `$.customer.id = 17` or `items[*].price > 9.5`: names, [numbers] and [*], then nothing (the path exists) or one of
= != < <= > >= ~ (contains) and a value in JSON or as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from odradek.model.errors import ConfigError

JSON_BYTES_MAX: Final = 4 << 20
"""Larger values are not decoded: they do not match a path."""
_PATH: Final = re.compile(
    r"\s*\$?((?:\.?[^\s.\[\]=!<>~]+|\[\s*(?:[0-9]{1,9}|\*|\"[^\"]*\"|'[^']*')\s*\]|\.)*)\s*"
)
_STEP: Final = re.compile(r"\.?([^\s.\[\]=!<>~]+)|\[\s*([0-9]{1,9}|\*|\"[^\"]*\"|'[^']*')\s*\]")
_OPERATOR: Final = re.compile(r"(!=|<=|>=|==?|<|>|~)\s*(.*)\Z", re.DOTALL)
_NODES_MAX: Final = 10_000
"""The number of places in one value that [*] may lead to."""

Step = str | int | None
"""A name, an index, or None for every element."""
FieldPath = tuple[Step, ...]
DocumentOf = Callable[[bytes | None], object]
"""Returns the document that a value is, or NO_JSON."""


class FilteredRecord(Protocol):
    """The parts of a record that a filter needs."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCondition:
    """A path, and how what is there compares to a value; without an operator the path has to exist."""

    steps: tuple[Step, ...]
    operator: str = ""
    value: object = None

    def test(self) -> Callable[[object], bool]:
        """Returns a function that tells whether one of the places that the path leads to fulfils the condition."""
        compare, value, steps = _COMPARISONS[self.operator], self.value, self.steps
        names = [step for step in steps if isinstance(step, str)]
        if len(names) < len(steps):
            return lambda document: any(compare(node, value) for node in _nodes(document, steps))

        def holds(document: object) -> bool:
            """Follows names alone, which is usual: they lead to one place at most."""
            for name in names:
                if not isinstance(document, dict) or name not in document:
                    return False
                document = document[name]
            return compare(document, value)

        return holds


def parse_condition(text: str) -> JsonCondition:
    """Parses a condition on JSON. Raises ConfigError, which shows an example."""
    match = _PATH.match(text)
    rest = text[match.end() :] if match is not None else text
    operator = _OPERATOR.match(rest) if rest else None
    if match is None or (rest and operator is None) or (operator is not None and not operator[2].strip()):
        raise ConfigError(f"{text!r:.80} is no condition on JSON: expected a path such as $.customer.id = 17")
    steps = _steps(match[1])
    if operator is None:
        if not steps:
            raise ConfigError(
                f"{text!r:.80} is no condition on JSON: expected a path such as $.customer.id = 17"
            )
        return JsonCondition(steps=steps)
    return JsonCondition(steps=steps, operator=operator[1], value=_value(operator[2].strip()))


def parse_path(text: str) -> FieldPath:
    """Parses a path that leads to a part of a document. Raises ConfigError, which shows an example."""
    match = _PATH.fullmatch(text)
    steps = _steps(match[1]) if match is not None else ()
    if not steps:
        raise ConfigError(f"{text!r:.80} is no path: expected one such as $.customer.id or items[*].price")
    return steps


def _steps(text: str) -> FieldPath:
    steps: list[Step] = []
    for name, index in _STEP.findall(text):
        if name:
            steps.append(name)
        elif index == "*":
            steps.append(None)
        else:
            steps.append(index[1:-1] if index[0] in "\"'" else int(index))
    return tuple(steps)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip("'") if text[:1] == "'" else text


def _nodes(document: object, steps: Sequence[Step]) -> Iterator[object]:
    nodes = [document]
    for step in steps:
        children: list[object] = []
        for node in nodes:
            children += _children(node, step)
            if len(children) > _NODES_MAX:
                break
        nodes = children
    yield from nodes


def _children(node: object, step: Step) -> list[object]:
    if isinstance(node, dict):
        if step is None:
            return list(node.values())[:_NODES_MAX]
        return [node[str(step)]] if str(step) in node else []
    if isinstance(node, list):
        if step is None:
            return node[:_NODES_MAX]
        return [node[step]] if isinstance(step, int) and step < len(node) else []
    return []


def _order(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def holds(node: object, value: object) -> bool:
        both_numbers = _is_number(node) and _is_number(value)
        both_texts = isinstance(node, str) and isinstance(value, str)
        return (both_numbers or both_texts) and compare(node, value)

    return holds


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equals(node: object, value: object) -> bool:
    return node == value and isinstance(node, bool) == isinstance(value, bool)


def _contains(node: object, value: object) -> bool:
    if isinstance(node, list):
        return any(_equals(element, value) for element in node)
    return str(value).lower() in str(node).lower() if isinstance(node, str | int | float) else False


_COMPARISONS: Final[Mapping[str, Callable[[object, object], bool]]] = {
    "": lambda _, __: True,
    "=": _equals,
    "==": _equals,
    "!=": lambda node, value: not _equals(node, value),
    "<": _order(lambda node, value: node < value),
    "<=": _order(lambda node, value: node <= value),
    ">": _order(lambda node, value: node > value),
    ">=": _order(lambda node, value: node >= value),
    "~": _contains,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """A search for records: text, key, header and a JSON condition, all of which must match. An empty filter matches every
    record."""

    text: str = ""
    """Part of the key or the value, without regard to case."""
    key: str = ""
    """The whole key."""
    header: str = ""
    """A header's name, or name=part of its value."""
    condition: JsonCondition | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.key or self.header or self.condition)

    def test(self, document_of: DocumentOf | None = None) -> Callable[[FilteredRecord], bool]:
        """Returns the filter as a function, which is prepared once for many records.

        `document_of` reads a value for a condition, by default as JSON.
        """
        tests: list[Callable[[FilteredRecord], bool]] = []
        if self.key:
            wanted_key = self.key.encode(errors="surrogatepass")
            tests.append(lambda record: record.key == wanted_key)
        if self.header:
            tests.append(_header_test(self.header))
        if self.text:
            tests.append(_any_text_test(self.text))
        if self.condition is not None:
            tests.append(_document_test(self.condition, document_of or json_of))
        if len(tests) == 1:
            return tests[0]
        return lambda record: all(test(record) for test in tests)


def _any_text_test(text: str) -> Callable[[FilteredRecord], bool]:
    """Returns the test of key and value; text of ASCII, which is usual, costs no further call for each."""
    has_text = _text_test(text)
    if not text.isascii():
        return lambda record: has_text(record.value) or has_text(record.key)
    part = text.lower().encode()

    def test(record: FilteredRecord) -> bool:
        value, key = record.value, record.key
        return (value is not None and part in value.lower()) or (key is not None and part in key.lower())

    return test


def _text_test(text: str) -> Callable[[bytes | None], bool]:
    lowered = text.lower()
    if lowered.isascii():
        part = lowered.encode()
        return lambda content: content is not None and part in content.lower()
    return lambda content: content is not None and lowered in content.decode(errors="replace").lower()


def _header_test(text: str) -> Callable[[FilteredRecord], bool]:
    name, equals, part = text.partition("=")
    has_part = _text_test(part)
    return lambda record: any(
        header == name and (not equals or not part or has_part(value)) for header, value in record.headers
    )


def _document_test(condition: JsonCondition, document_of: DocumentOf) -> Callable[[FilteredRecord], bool]:
    holds = condition.test()

    def test(record: FilteredRecord) -> bool:
        document = document_of(record.value)
        try:
            return document is not NO_JSON and holds(document)
        except (ValueError, RecursionError):  # a number that is too long for a text, lists that are too deep
            return False

    return test


NO_JSON: Final = object()


def json_of(content: bytes | None) -> object:
    """Returns the document that the bytes are, or NO_JSON: hostile nesting and numbers count as no JSON."""
    if content is None or len(content) > JSON_BYTES_MAX:
        return NO_JSON
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return NO_JSON
