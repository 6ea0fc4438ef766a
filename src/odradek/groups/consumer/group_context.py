"""The inputs of every decision about one group, except the group itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek.groups.consumer.regex import TopicPatterns
from odradek.groups.consumer.settings import ConsumerGroupSettings
from odradek.groups.consumer.timers import MemberTimers
from odradek.groups.shard.large_targets import LargeTargets
from odradek.groups.shard.machine import ClusterTopics
from odradek.shards import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """The inputs of a decision about a consumer group: topics, patterns, settings and time. `timers` collects changes of
    deadlines, which are applied at its end. `may_describe` tells which topics the asking member may describe."""

    topics: ClusterTopics
    patterns: TopicPatterns
    settings: ConsumerGroupSettings
    now: Moment
    timers: MemberTimers
    large_targets: LargeTargets | None = None
    may_describe: Callable[[str], bool] | None = None

    def matching(self, pattern: str) -> frozenset[str]:
        """Returns the topics that an expression names and that the member may describe.

        Raises INVALID_REGULAR_EXPRESSION, or MatchingRequired: see `TopicPatterns.matching`.
        """
        names = self.patterns.matching(pattern, self.topics.names())
        return names if self.may_describe is None else frozenset(filter(self.may_describe, names))
