"""The user's policy for failed records: the number of tries, their delays, and the topic for records that are given up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from string import Formatter
from typing import Any, Final, Self

from odradek.model.errors import ConfigError, KafkaError
from odradek.model.exception_text import class_name
from odradek.model.ids import check_topic_name
from odradek.model.java_numbers import whole_number
from odradek.model.public import public

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>ms|s|m|h|d)\Z")
_ANY_DELAY: Final = r"[0-9]{1,9}(?:ms|s|m|h|d)"
_ANY_INDEX: Final = r"[0-9]+"
_FIELDS: Final = ("topic", "group", "delay", "index")
FOREVER_MS: Final = -1


@public("odradek.retry")
class Reject(Exception):
    """The exception by which a handler rejects a record: it goes to the dead-letter topic at once, without further tries."""


@public("odradek.retry")
class RetryMode(StrEnum):
    """The handling of the records after a failed record."""

    NON_BLOCKING = "non-blocking"
    """Later records go on: the failed one waits in a retry topic. Records of one key may be handled out of order."""
    BLOCKING = "blocking"
    """Later records wait in their partition until the failed one is done or dead. Order is kept."""


@public("odradek.retry")
@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The policy for records that a handler raises for.

    A record is tried once, and once more after each delay; then it is a dead letter. `from_config` takes the same with
    names and texts, for files and environments.
    """

    delays: tuple[str, ...] = ("10s", "1m", "10m")
    """Such as 500ms, 10s, 1m, 2h, 1d. Empty: a record that fails is a dead letter at once."""
    mode: RetryMode = RetryMode.NON_BLOCKING
    not_retried: tuple[str, ...] = ()
    """Exceptions that no second try mends: names of classes, with their module or without; subclasses count."""
    retry_topic: str = "{topic}.{group}.retry-{delay}"
    """A name for each delay; {index} counts from 0. Groups need topics of their own."""
    dead_letter_topic: str = "{topic}.{group}.dlq"
    creating_topics: bool = True
    """Make retry and dead-letter topics that do not exist, with as many partitions as the topic has."""
    dead_letter_retention_ms: int = FOREVER_MS
    """The retention of dead-letter topics that are created; -1: without a limit."""
    exactly_once: bool = False
    """Hand records over, and commit offsets, in transactions; what the handler returns is sent in them, too."""

    def __post_init__(self) -> None:
        """Raises ConfigError, which names what is wrong."""
        object.__setattr__(self, "mode", RetryMode(_one_of("retry.mode", self.mode, tuple(RetryMode))))
        several: dict[str, object] = {"retry.delays": self.delays, "retry.exclude": self.not_retried}
        for setting, names in several.items():
            if isinstance(names, str):
                raise ConfigError(
                    f"{setting}={names!r} is one text: give a tuple of them, such as ({names!r},)"
                )
        for delay in self.delays:
            delay_ms(delay)
        if self.dead_letter_retention_ms < FOREVER_MS:
            raise ConfigError(
                f"errors.deadletterqueue.topic.retention.ms={self.dead_letter_retention_ms} is below -1, which means no limit"
            )
        for name, template in (
            ("retry.topic.name", self.retry_topic),
            ("errors.deadletterqueue.topic.name", self.dead_letter_topic),
        ):
            _check_template(name, template)
        if len(set(self.delays)) > 1 and not {"delay", "index"} & _fields_of(self.retry_topic):
            raise ConfigError(
                f"retry.topic.name={self.retry_topic!r} is one topic for several delays, in which the longer ones hold up"
                " the others: put {delay} or {index} into it"
            )

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Returns the policy for a mapping with Kafka-like names. Raises ConfigError for an unknown name.

        retry.delays (10s,1m,10m), retry.mode (non-blocking, blocking), retry.exclude (names of exceptions),
        retry.topic.name, retry.topics.create (true), errors.deadletterqueue.topic.name,
        errors.deadletterqueue.topic.retention.ms (-1), delivery (at_least_once, exactly_once).
        """
        unknown = [key for key in config if key not in CONFIG_KEYS]
        if unknown:
            raise ConfigError(
                f"unknown setting {unknown[0]!r} of a retry policy; known are {', '.join(CONFIG_KEYS)}"
            )
        return cls(**{field: _read(key, config[key]) for key, field in CONFIG_KEYS.items() if key in config})

    def retries(self, error: BaseException) -> bool:
        """Tells whether a second try may help. Names are compared with the class of the error and all of its bases."""
        if isinstance(error, Reject):
            return False
        names = {name for kind in type(error).__mro__ for name in (class_name(kind), kind.__qualname__)}
        return not names & set(self.not_retried)

    def retry_topic_for(self, topic: str, group: str, number: int) -> str:
        """Returns the topic in which a record of `topic` waits for the delay of this number."""
        fields = {"topic": topic, "group": group, "delay": self.delays[number], "index": str(number)}
        return _topic_name("retry.topic.name", self.retry_topic, fields)

    def retry_topic_pattern(self, topic: str, group: str) -> re.Pattern[str]:
        """Returns a pattern for the topics in which records of `topic` wait, or waited under other delays."""
        name = self.retry_topic.format(topic=topic, group=group, delay="<delay>", index="<index>")
        return re.compile(
            re.escape(name).replace("<delay>", _ANY_DELAY).replace("<index>", _ANY_INDEX), re.ASCII
        )

    @property
    def has_topics_of_its_group(self) -> bool:
        """The name of a retry topic tells whose it is."""
        return "group" in _fields_of(self.retry_topic)

    def dead_letter_topic_for(self, topic: str, group: str) -> str:
        """Returns the name of the dead-letter topic for records of a topic that a group gives up."""
        fields = {"topic": topic, "group": group}
        return _topic_name("errors.deadletterqueue.topic.name", self.dead_letter_topic, fields)


CONFIG_KEYS: Final = {
    "retry.delays": "delays",
    "retry.mode": "mode",
    "retry.exclude": "not_retried",
    "retry.topic.name": "retry_topic",
    "retry.topics.create": "creating_topics",
    "errors.deadletterqueue.topic.name": "dead_letter_topic",
    "errors.deadletterqueue.topic.retention.ms": "dead_letter_retention_ms",
    "delivery": "exactly_once",
}
"""Setting of a file to the field that it sets. `errors.deadletterqueue` is the term of Kafka Connect and of
share groups."""


def delay_ms(delay: str) -> int:
    """Milliseconds of a delay such as 10s; ConfigError for anything else."""
    match = _DELAY.match(delay)
    if match is None:
        raise ConfigError(f"retry.delays: {delay!r:.80} is no delay such as 500ms, 10s, 1m, 2h or 1d")
    return int(match["count"]) * _UNIT_MS[match["unit"]]


def _read(key: str, value: object) -> Any:
    text = str(value).strip()
    if key in ("retry.delays", "retry.exclude"):
        items = value if isinstance(value, list | tuple) else text.split(",")
        return tuple(str(element).strip() for element in items if str(element).strip())
    if key == "retry.mode":
        return RetryMode(_one_of(key, text, tuple(RetryMode)))
    if key == "retry.topics.create":
        return _one_of(key, text.lower(), ("true", "false")) == "true"
    if key == "delivery":
        return _one_of(key, text, ("at_least_once", "exactly_once")) == "exactly_once"
    if key == "errors.deadletterqueue.topic.retention.ms":
        try:
            return whole_number(text)
        except ValueError:
            raise ConfigError(
                f"{key}={text!r:.80} is no number of milliseconds: write digits only, such as 1000"
            ) from None
    return text


def _one_of(key: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise ConfigError(f"{key}={text!r} is not allowed: expected {' or '.join(allowed)}")
    return text


def _check_template(key: str, template: str) -> None:
    try:
        fields = _fields_of(template)
    except ValueError as error:
        raise ConfigError(f"{key}={template!r} is no template: {error}") from None
    unknown = fields - set(_FIELDS)
    if unknown:
        known = ", ".join(f"{{{field}}}" for field in _FIELDS)
        raise ConfigError(f"{key}={template!r}: there is no field {{{min(unknown)}}}; there are {known}")


def _fields_of(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def _topic_name(key: str, template: str, fields: Mapping[str, str]) -> str:
    try:
        name = template.format(**fields)
        check_topic_name(name)
    except KeyError as error:
        raise ConfigError(f"{key}={template!r}: {{{error.args[0]}}} has no meaning here") from None
    except KafkaError as error:
        raise ConfigError(f"{key}={template!r}: {error.message}") from None
    return name
