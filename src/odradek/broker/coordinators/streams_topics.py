"""Creates the internal topics of streams groups: repartition and changelog topics, as their members'
topologies define them.

A heartbeat does not wait for it. The members learn with a later heartbeat that their topics are there, or why not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from odradek.cluster.image import TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.groups.streams.topology import StreamsInternalTopic
from odradek.model.errors import ErrorCode, KafkaError
from odradek.telemetry import events

_log = events.caused_by_peers("groups")

_TOPICS_AT_ONCE: Final = 50
_ERRORS_SHOWN: Final = 5


class StreamsTopics:
    """The creations under way, one for each group at a time. `note` gets a group's id and why its creation failed."""

    def __init__(
        self,
        create: Callable[[Sequence[TopicSpec]], Awaitable[list[TopicImage | KafkaError]]],
        note: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._create = create
        self._note = note
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, group_id: str, topics: Collection[StreamsInternalTopic]) -> None:
        """Creates the topics, unless that is under way for the group."""
        if group_id not in self._under_way:
            task = asyncio.get_running_loop().create_task(
                self._work(group_id, list(topics)), name="create internal topics"
            )
            self._under_way[group_id] = task

    def close(self) -> None:
        """Ends what is under way: the next coordinator is asked again."""
        for task in self._under_way.values():
            task.cancel()

    async def _work(self, group_id: str, topics: list[StreamsInternalTopic]) -> None:
        try:
            errors = []
            for first in range(0, len(topics), _TOPICS_AT_ONCE):
                errors += await self._created(topics[first : first + _TOPICS_AT_ONCE])
            if errors:
                _log.warning("internal_topics_not_created", group=group_id, reason=errors[0])
            await self._note(group_id, _shown(errors))
        except KafkaError as error:
            _log.warning("internal_topics_not_created", group=group_id, reason=error.message)
        except Exception:  # noqa: BLE001 - the root of a task: the next heartbeat asks for it once more
            _log.exception("internal_topics_not_created", group=group_id)
        finally:
            del self._under_way[group_id]

    async def _created(self, topics: Sequence[StreamsInternalTopic]) -> list[str]:
        specs = [
            TopicSpec(
                name=topic.name,
                partition_count=topic.partition_count,
                replication_factor=topic.replication_factor,
                configs=topic.configs,
            )
            for topic in topics
        ]
        outcomes = await self._create(specs)
        return [
            f"{spec.name} ({outcome.message})"
            for spec, outcome in zip(specs, outcomes, strict=True)
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        ]


def _shown(errors: Sequence[str]) -> str:
    if not errors:
        return ""
    rest = len(errors) - _ERRORS_SHOWN
    more = f", and {rest} others" if rest > 0 else ""
    return f"Creation failed: {', '.join(errors[:_ERRORS_SHOWN])}{more}."
