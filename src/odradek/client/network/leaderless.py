"""Warnings for partitions without a leader that records wait for, or that a consumer reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.client.network.metadata_snapshot import MetadataSnapshot
from odradek.model.ids import TopicPartition
from odradek.telemetry import events

_log = events.get("client")

CALM_S: Final = 3.0
"""A leader that moves is back sooner."""


class LeaderlessWarnings:
    """Logs one warning for each topic, until every partition that is waited for has a leader. Used on the loop."""

    __slots__ = ("_since", "_warned")

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}
        self._warned: set[str] = set()

    def check(
        self, waiting: Iterable[TopicPartition], image: MetadataSnapshot, now: float, consequence: str
    ) -> None:
        """Warns about partitions that have had no leader for a while. `waiting`: those that cannot go on now. Partitions
        that the cluster does not have are another warning's."""
        for tp in waiting:
            if image.partition(tp) is None:
                continue
            since = self._since.setdefault(tp, now)
            if tp.topic not in self._warned and now - since >= CALM_S:
                self._warned.add(tp.topic)
                _log.warning(
                    "partition_has_no_leader",
                    partition=tp,
                    reason=f"no broker leads it at present: {consequence}",
                    advice="start the brokers of its replicas; `odradek cluster status` names them",
                )
        if self._since:
            self._forget(image)

    def _forget(self, image: MetadataSnapshot) -> None:
        for tp in [tp for tp in self._since if image.leader(tp) is not None or image.partition(tp) is None]:
            del self._since[tp]
        for topic in self._warned - {tp.topic for tp in self._since}:
            self._warned.discard(topic)
            _log.info("partition_has_a_leader_again", topic=topic)
