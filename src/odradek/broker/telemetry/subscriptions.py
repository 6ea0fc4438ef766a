"""Subscriptions to clients' metrics: which clients are asked for which metrics, and how often (KIP-714). Pure.

Subscriptions are settings of the resource type CLIENT_METRICS. A client gets the metrics of all that match it, at the shortest
of their intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.config.client_metrics import CLIENT_METRICS_SETTINGS, pattern_of
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.groups.consumer import regex
else:
    regex = lazy("odradek.groups.consumer.regex")

ALL_METRICS: Final = "*"
_INTERVAL_MS: Final[int] = cast(int, CLIENT_METRICS_SETTINGS["interval.ms"].default)
_MATCHED_CHARACTERS_MAX: Final = 1_000
"""A longer client id matches no pattern."""
_USUAL_CLIENT: Final = "x" * 100
"""A client id that every pattern can be tried with quickly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryClient:
    """A client, as the patterns of a subscription see it. The fields are Kafka's names of selectors."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """The metrics that one client is asked for."""

    metrics: tuple[str, ...]
    """Beginnings of their names, sorted; `("*",)` for all."""
    interval_ms: int

    @property
    def requested(self) -> tuple[str, ...]:
        """The beginnings as a client is asked for them.

        All metrics have two spellings: `*`, which Kafka's brokers send and Java's client and librdkafka know, and the empty
        beginning of the protocol's definition, which is all that franz-go knows. Both together are right for each of them: who
        does not know a whole answer of `*` compares beginnings, and every name begins with the empty one.
        """
        return (ALL_METRICS, "") if self.metrics == (ALL_METRICS,) else self.metrics

    def wants(self, metric: str) -> bool:
        return self.metrics == (ALL_METRICS,) or metric.startswith(self.metrics)


class ClientPattern:
    """A regular expression over clients. The event loop matches it, so it must be a quick one."""

    def __init__(self, pattern: str) -> None:
        """KafkaError INVALID_REGULAR_EXPRESSION for what is not RE2's syntax, or takes long."""
        self._pattern: Final = pattern
        self._patterns: Final = regex.TopicPatterns()
        try:
            self._patterns.matching(pattern, (_USUAL_CLIENT,))
        except regex.MatchingRequired:
            reason = f"the regular expression {pattern[:200]!r} takes too much work: simplify it"
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from None

    def matches(self, text: str) -> bool:
        """Returns whether the whole text matches. One that is too long matches nothing: clients choose their ids."""
        if len(text) > _MATCHED_CHARACTERS_MAX:
            return False
        try:
            return bool(self._patterns.matching(self._pattern, (text,)))
        except (KafkaError, regex.MatchingRequired):
            return False


class MetricsSubscription:
    """One subscription of an administrator."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        """`configs` were checked when they were set."""
        values: dict[str, Any] = {
            key: setting.parse(configs[key]) if key in configs else setting.default
            for key, setting in CLIENT_METRICS_SETTINGS.items()
        }
        self.metrics: Final[tuple[str, ...]] = values["metrics"]
        self.interval_ms: Final[int] = values["interval.ms"]
        self._patterns: Final = {
            name: ClientPattern(pattern) for name, pattern in map(pattern_of, values["match"])
        }

    def matches(self, client: TelemetryClient) -> bool:
        return all(pattern.matches(getattr(client, name)) for name, pattern in self._patterns.items())


class Subscriptions:
    """The subscriptions to client metrics of the whole cluster."""

    def __init__(self, configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """`configs`: the settings of each, by name."""
        self.configs: Final = configs or {}
        self._all: Final = [MetricsSubscription(settings) for settings in self.configs.values()]

    def of(self, client: TelemetryClient) -> Subscribed:
        matching = [subscription for subscription in self._all if subscription.matches(client)]
        metrics = {metric for subscription in matching for metric in subscription.metrics}
        return Subscribed(
            metrics=(ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)),
            interval_ms=min([_INTERVAL_MS, *(subscription.interval_ms for subscription in matching)]),
        )
