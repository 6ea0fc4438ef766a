"""Arguments of a program, checked as it is written: a wrong one raises an error that names what to write.

Without these checks, a wrong argument shows when the program runs, or never: a join of an unknown kind drops records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar, get_args

from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import TOPIC_NAME_LENGTH_MAX, check_topic_name
from odradek.model.near_names import near_hint
from odradek.streams.plan.operators import JoinKind

T = TypeVar("T")

_SAME_KIND: Final = {"full": "outer", "fullouter": "outer", "full_outer": "outer", "left_outer": "left"}
"""Kinds of joins as Spark calls them, and ours."""


def checked_function(function: object, what: str, needed: str) -> None:
    """Raises ConfigError for what cannot be called."""
    if not callable(function):
        raise ConfigError(f"{what} is a function {needed}, not {function!r:.80}")


def checked_join_kind(how: object) -> None:
    """Raises ConfigError for what is no kind of join."""
    if how in get_args(JoinKind):
        return
    same = _SAME_KIND.get(how) if isinstance(how, str) else None
    hint = f": write how={same!r}" if same else ": swap the sides, and write how='left'" * (how == "right")
    raise ConfigError(f"how is one of {', '.join(get_args(JoinKind))}, not {how!r:.80}{hint}")


def checked_session(spark: T) -> T:
    """Returns a session of Spark, or None. ConfigError for one of Spark Connect, which has no JVM here."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "spark is a session of Spark Connect, which has no JVM in this process: leave spark out for a session of the"
            " program's own, or run the program where Spark's driver is (spark-submit, or a pipeline)"
        )
    return spark


def checked_topic(topic: object, what: str) -> str:
    """Returns the topic's name. ConfigError for one that Kafka does not allow."""
    if not isinstance(topic, str):
        hint = "; merge streams of several topics: a.merge(b)" * isinstance(topic, (list, tuple, set))
        raise ConfigError(f"{what} takes the name of a topic, not {topic!r:.80}{hint}")
    try:
        check_topic_name(topic)
    except KafkaError as error:
        raise ConfigError(f"{what}: {error}") from None
    return topic


def checked_text(text: object, what: str, needed: str) -> str:
    """Raises ConfigError for what is no text, and for empty text."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{what} is {needed}, not {text!r:.80}")
    return text


def checked_name(name: object, what: str, needed: str) -> str:
    """Returns the name, which becomes a part of names of topics and of checkpoint paths. Raises ConfigError for one that
    Kafka Streams refuses, too."""
    text = checked_text(name, what, needed)
    try:
        check_topic_name(text)
    except KafkaError:
        raise ConfigError(
            f"{what} is 1 to {TOPIC_NAME_LENGTH_MAX} ASCII letters, digits, '.', '_' and '-', and not '.' or '..', as the name"
            f" of a topic; not {name!r:.80}"
        ) from None
    return text


def checked_prefix(prefix: object) -> None:
    """Raises ConfigError for what is no text; it may be empty."""
    if not isinstance(prefix, str):
        raise ConfigError(f"prefix is text such as 'user_', not {prefix!r:.80}")


def checked_mapping(value: object, what: str, needed: str) -> Mapping[str, str]:
    """Raises ConfigError for what is no dict."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} is a dict such as {needed}, not {value!r:.80}")
    return value


def checked_flag(what: str, value: object) -> bool:
    """Raises ConfigError unless it is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{what} is True or False, not {value!r:.80}")
    return value


def checked_partitions(partitions: object) -> None:
    """Raises ConfigError unless it is a whole number from 1 on."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise ConfigError(f"partitions is a whole number from 1 on, not {partitions!r:.80}")


def unread_topics(starting: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Returns a sentence for each topic of `starting=` that the program does not read."""
    known = sorted(set(topics))
    return [
        f"starting= names the topic {topic!r}, which the program does not read; it reads {', '.join(known) or 'none'}"
        f"{near_hint(topic, known)}"
        for topic in starting
        if topic not in known
    ]
