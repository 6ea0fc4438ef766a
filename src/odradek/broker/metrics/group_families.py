"""Groups that this broker coordinates: their members and states, committed offsets, and lag.

Names follow kafka_exporter and Kafka's group coordinator. The coordinator does not lead all partitions that
its groups read, so it asks the other leaders where theirs end, once for each scrape and after it read what
was committed: lag is never too small. A partition whose end is not known in time has no lag in that scrape,
and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.end_offsets import known_ends
from odradek.broker.metrics.end_history import EndHistory
from odradek.broker.requests.context import BrokerContext
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.turns import SLICE_ITEMS, Turn, slices
from odradek.shards import Moment, Outcome, Shard, decided
from odradek.telemetry.metrics import Family, gauge, labels

if TYPE_CHECKING:
    from odradek.groups.shard.kinds import Group
    from odradek.groups.shard.machine import GroupMachine
    from odradek.groups.shard.offset_table import CommittedOffset, PartitionName

_ENDS_SECONDS_MAX: Final = 2.0
"""Other leaders must return their partitions' end offsets within this time, or the scrape continues without
them."""
_BEAN: Final = "kafka_coordinator_group_groupmetadatamanager_"
_METRICS: Final = "kafka_server_group_coordinator_metrics_"
_CLASSIC_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_STATES: Final = {
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}

_STATE_LABELS: Final = {"NotReady": "not_ready"}
"""The labels of states that are not the lower case of their names."""


class GroupFamilies:
    """The metric families of the groups that this broker coordinates. `collect` fills them."""

    def __init__(self, broker: BrokerContext, history: EndHistory) -> None:
        self._broker = broker
        self._history = history
        group = "kafka_consumergroup_"
        self._members = gauge(f"{group}members", "Members of a group.")
        self._offset = gauge(f"{group}current_offset", "Offset that a group committed for a partition.")
        self._offset_sum = gauge(f"{group}current_offset_sum", "Sum of a group's offsets for a topic.")
        self._lag = gauge(f"{group}lag", "Records of a partition that a group has yet to read.")
        self._lag_sum = gauge(f"{group}lag_sum", "Records of a topic that a group has yet to read.")
        ours = "odradek_consumergroup_"
        self._lag_s = gauge(
            f"{ours}lag_seconds", "Age of a partition's first record that a group has yet to read."
        )
        self._lag_s_max = gauge(f"{ours}lag_seconds_max", "The largest lag of a group in seconds.")
        self._unknown = gauge(f"{ours}lag_unknown", "Partitions whose end other leaders did not say in time.")
        self._loading = gauge(
            f"{ours}shards_loading", "Partitions of __consumer_offsets that are not read yet."
        )
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._offset_count = 0
        self._committed: dict[str, list[tuple[PartitionName, CommittedOffset]]] = {}
        self._loading_count = 0

    async def collect(self, turn: Turn) -> None:
        parts = self._broker.kinds.groups.existing_parts
        for _, shard in parts.shards if parts is not None else ():
            await turn.step()
            try:
                await self._read_shard(shard, turn)
            except KafkaError:  # it is loaded, or another broker leads it by now
                self._loading_count += 1
        names: dict[TopicPartition, None] = {}
        for committed in self._committed.values():
            for some in slices(committed, SLICE_ITEMS):
                await turn.step()
                names.update((TopicPartition(*partition_name), None) for partition_name, _ in some)
        ends = await known_ends(self._broker, names, turn, timeout_s=_ENDS_SECONDS_MAX)
        now = self._broker.runtime.clock.monotonic()
        for name, end_offset in ends.items():
            await turn.step()
            self._history.note(name, end_offset, now)
        self._history.keep(names.keys())
        for group_id, committed in self._committed.items():
            await self._add_offsets(group_id, committed, ends, now, turn)
        self._unknown.add(len(names) - len(ends))
        self._loading.add(self._loading_count)

    async def _read_shard(self, shard: Shard[GroupMachine], turn: Turn) -> None:
        groups, with_offsets = decided(shard, _groups_of)
        for group in groups:
            await turn.step()
            self._kinds[group.kind.value, group.state_name] += 1
            self._members.add(group.member_count, labels(consumergroup=group.group_id))
        present = {group.group_id for group in groups}
        for group_id in with_offsets:
            await turn.step()
            if group_id not in present:  # offsets without a group, which clients see as an empty one
                self._members.add(0, labels(consumergroup=group_id))
            committed = decided(shard, partial(_offsets_of, group_id=group_id))
            self._offset_count += len(committed)
            topics = self._broker.image.topics
            existing = self._committed[group_id] = []
            for partition_name, offset in committed:
                await turn.step()
                topic = topics.get(partition_name[0])
                if (
                    topic is not None
                    and partition_name[1] < len(topic.partitions)
                    and offset.is_of(topic.topic_id)
                ):
                    existing.append((partition_name, offset))

    async def _add_offsets(
        self,
        group_id: str,
        committed: Iterable[tuple[PartitionName, CommittedOffset]],
        ends: dict[TopicPartition, int],
        now: float,
        turn: Turn,
    ) -> None:
        sums: dict[str, int] = {}
        lags: dict[str, int] = {}
        lag_s_max = 0.0
        for (topic, index), offset in committed:
            await turn.step()
            text = labels(consumergroup=group_id, topic=topic, partition=index)
            self._offset.add(offset.offset, text)
            sums[topic] = sums.get(topic, 0) + offset.offset
            name = TopicPartition(topic, index)
            end_offset = ends.get(name)
            if end_offset is None:
                continue
            lag = max(end_offset - offset.offset, 0)
            self._lag.add(lag, text)
            lags[topic] = lags.get(topic, 0) + lag
            lag_s = self._history.age_s(name, offset.offset, now) if lag else 0.0
            self._lag_s.add(lag_s, text)
            lag_s_max = max(lag_s_max, lag_s)
        for family, figures in ((self._offset_sum, sums), (self._lag_sum, lags)):
            for topic, value in figures.items():
                family.add(value, labels(consumergroup=group_id, topic=topic))
        if lags:
            self._lag_s_max.add(lag_s_max, labels(consumergroup=group_id))

    def totals(self) -> list[Family]:
        """Returns what has a sample for each group, or for each topic that it reads, and the counts of groups."""
        return [
            *self._counts(),
            self._members,
            self._lag_sum,
            self._lag_s_max,
            self._offset_sum,
            self._unknown,
            self._loading,
        ]

    def of_partitions(self) -> list[Family]:
        return [self._lag, self._lag_s, self._offset]

    def _counts(self) -> list[Family]:
        by_kind: Counter[str] = Counter()
        for (kind, _), count in self._kinds.items():
            by_kind[kind] += count
        offsets = gauge(f"{_BEAN}numoffsets", "Offsets that groups committed.")
        offsets.add(self._offset_count)
        classic = gauge(f"{_BEAN}numgroups", "Groups of the classic protocol.")
        classic.add(by_kind["classic"])
        families = [offsets, classic]
        for state in _CLASSIC_STATES:
            family = gauge(f"{_BEAN}numgroups{state.lower()}", f"Classic groups in the state {state}.")
            family.add(self._kinds["classic", state])
            families.append(family)
        groups = gauge(f"{_METRICS}group_count", "Groups, by their protocol.")
        for kind in ("classic", "consumer", "share", "streams"):
            groups.add(by_kind[kind], labels(protocol=kind))
        families.append(groups)
        for kind, states in _STATES.items():
            family = gauge(f"{_METRICS}{kind}_group_count", f"Groups of the {kind} protocol, by their state.")
            for state in states:
                family.add(self._kinds[kind, state], labels(state=_STATE_LABELS.get(state, state.lower())))
            families.append(family)
        return families


def _groups_of(machine: GroupMachine, now: Moment) -> Outcome[tuple[list[Group], list[str]]]:
    """Returns all groups of a shard, and the ids of those with offsets."""
    return Outcome((list(machine.groups.values()), list(machine.offsets.groups())))


def _offsets_of(
    machine: GroupMachine, now: Moment, *, group_id: str
) -> Outcome[list[tuple[PartitionName, CommittedOffset]]]:
    return Outcome(list(machine.offsets.of(group_id).items()))
