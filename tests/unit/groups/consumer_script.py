"""The life of a consumer group (KIP-848) in the language of `group_script`, with commands of its own.

    topics t=4
    enter A topics=t
    ----
    log: member A
    ...
    enter A: epoch=1 has t/0-3

`tests/unit/groups/consumer/README.md` lists the commands. A member's epoch is the last one that it heard.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from tests.unit.groups import group_script
from tests.unit.groups.group_bench import GroupBench
from tests.unit.groups.group_script import GROUP, Script

from odradek.groups.classic.kind import CLASSIC
from odradek.groups.consumer import formats
from odradek.groups.consumer.consumer_protocol import assignment_bytes, read_assignment
from odradek.groups.consumer.kind import ConsumerGroups
from odradek.groups.consumer.member import MemberState
from odradek.groups.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from odradek.groups.offsets.kind import OFFSETS
from odradek.groups.shard.formats import GROUP_METADATA_KEY, GroupMetadataValue, read, version_of
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.settings import GroupSettings
from odradek.model.errors import ErrorCode
from odradek.protocol import encode
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.groups.consumer_protocol import ConsumerProtocolSubscription, OwnedPartitions
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse
from odradek.shards import NewRecord

_RUN = re.compile(r"(\d+)(?:-(\d+))?")
REBALANCE_MS = 60_000


class ScriptTopics:
    """Topics that come, grow and go. A topic made again has another id."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[UUID, int]] = {}
        self._made = 0
        self.version = 1

    def set(self, name: str, count: int) -> None:
        self.version += 1
        if name in self._topics:
            self._topics[name] = (self._topics[name][0], count)
        else:
            self._made += 1
            self._topics[name] = (UUID(int=self._made), count)

    def drop(self, name: str) -> None:
        self.version += 1
        del self._topics[name]

    def topic_id(self, name: str) -> UUID | None:
        topic_id = self._topics.get(name)
        return None if topic_id is None else topic_id[0]

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, (known, _) in self._topics.items() if known == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self._topics.get(name, (None, 0))[1]

    def names(self) -> Collection[str]:
        return self._topics


class ConsumerBench(GroupBench):
    """A bench whose shard knows consumer groups, and whose topics change."""

    def __init__(self, **settings: Any) -> None:
        self.changing = ScriptTopics()
        self.hidden: set[str] = set()
        """Topics that no member may describe."""
        self.consumer_settings = ConsumerGroupSettings(**settings)
        self.consumer = ConsumerGroups(lambda group_id: self.consumer_settings)
        super().__init__(
            GroupSettings(initial_rebalance_delay_ms=0), kinds=(CLASSIC, OFFSETS, self.consumer.parts())
        )
        self._dependencies = replace(self._dependencies, topics=self.changing)
        self.machine = self._machine()

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, api_version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        caller = Caller(
            client_id="c",
            client_host="/h",
            api_version=api_version,
            may_describe=lambda topic: topic not in self.hidden,
        )
        return self.execute(partial(self.consumer.heartbeat, request=request, caller=caller))


class ConsumerScript(Script):
    """Runs commands against a `ConsumerBench`."""

    def __init__(self) -> None:
        super().__init__()
        self.bench: ConsumerBench = ConsumerBench(assignment_interval_ms=0)
        self._epochs: dict[str, int] = {}
        self._had: dict[str, list[TopicPartitions]] = {}

    # -- commands

    def do_topics(self, words: list[str], options: dict[str, str]) -> None:
        """topics NAME=COUNT...: make them, or let them grow"""
        for name, count in options.items():
            self.bench.changing.set(name, int(count))

    def do_hide(self, words: list[str], options: dict[str, str]) -> None:
        """hide TOPIC...: from now on members may describe all but these"""
        self.bench.hidden = set(words)

    def do_topic_gone(self, words: list[str], options: dict[str, str]) -> None:
        for name in words:
            self.bench.changing.drop(name)

    def do_consumer_settings(self, words: list[str], options: dict[str, str]) -> None:
        values: dict[str, Any] = {}
        for key, value in options.items():
            name = key.replace("-", "_")
            values[name] = (
                MigrationPolicy(value)
                if name == "migration"
                else tuple(value.split(","))
                if name == "assignors"
                else int(value)
            )
        self.bench.consumer_settings = replace(self.bench.consumer_settings, **values)

    def do_enter(self, words: list[str], options: dict[str, str]) -> str:
        """enter MEMBER [topics= regex= instance= assignor= rebalance= rack= group= version=]"""
        return self._beat(words[0], {"epoch": "0", "owns": "", "rebalance": str(REBALANCE_MS), **options})

    def do_beat(self, words: list[str], options: dict[str, str]) -> str:
        """beat MEMBER [owns=PLACES epoch=N and all of `enter`]: what is not said has not changed"""
        return self._beat(words[0], options)

    def do_ack(self, words: list[str], options: dict[str, str]) -> str:
        """ack MEMBER: a heartbeat of a member that uses exactly what it last heard"""
        return self._beat(words[0], options, owned=self._had.get(words[0], []))

    def do_depart(self, words: list[str], options: dict[str, str]) -> str:
        return self._beat(words[0], {"epoch": "-1", **options})

    def do_show(self, words: list[str], options: dict[str, str]) -> str:
        """show: the group as ConsumerGroupDescribe shows it"""
        group = self.bench.execute(
            partial(self.bench.consumer.describe, group_id=options.get("group", GROUP))
        )
        members = "; ".join(
            " ".join(
                [
                    f"{member.member_id}@{member.member_epoch}",
                    *(["classic"] if member.member_type == 0 else []),
                    f"has {self._places(member.assignment.topic_partitions)}",
                    *(
                        [f"shall have {self._places(member.target_assignment.topic_partitions)}"]
                        if member.target_assignment != member.assignment
                        else []
                    ),
                ]
            )
            for member in group.members
        )
        return f"{group.group_state} epoch={group.group_epoch}/{group.assignment_epoch} {group.assignor_name} [{members}]"

    # -- what they say and hear

    def _beat(
        self, member: str, options: Mapping[str, str], owned: list[TopicPartitions] | None = None
    ) -> str:
        epoch = int(options.get("epoch", self._epochs.get(member, 0)))
        topics = options.get("topics")
        if "owns" in options:
            owned = self._owned(options["owns"])
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.get("group", GROUP),
            member_id=group_script.long_form(options.get("member", member)),
            member_epoch=epoch,
            instance_id=options.get("instance"),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(options.get("rebalance", "-1")),
            subscribed_topic_names=None
            if topics is None
            else [topic for topic in topics.split(",") if topic],
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=owned,
        )
        response = self.bench.heartbeat(request, int(options.get("version", "1")))
        self._epochs[member] = response.member_epoch
        if response.assignment is None:
            return f"epoch={response.member_epoch}"
        self._had[member] = response.assignment.topic_partitions
        return f"epoch={response.member_epoch} has {self._places(self._had[member])}"

    def _owned(self, text: str) -> list[TopicPartitions]:
        """t/0-2,u/1"""
        owned = []
        for place in filter(None, text.split(",")):
            name, _, numbers = place.partition("/")
            topic_id = self.bench.changing.topic_id(name)
            assert topic_id is not None, f"there is no topic {name}"
            run = _RUN.fullmatch(numbers)
            assert run is not None, place
            first, last = int(run[1]), int(run[2] or run[1])
            owned.append(TopicPartitions(topic_id=topic_id, partitions=list(range(first, last + 1))))
        return owned

    def _places(self, listed: Iterable[Any]) -> str:
        names = self.bench.changing.topic_name
        return (
            ",".join(
                f"{names(listed_group.topic_id) or '(gone)'}/{_runs(listed_group.partitions)}"
                for listed_group in listed
            )
            or "nothing"
        )

    def _subscription(self, topics: list[str], options: dict[str, str]) -> bytes:
        """join ... [owns=PLACES]: what a cooperative member has"""
        owned = [
            OwnedPartitions(
                topic=self.bench.changing.topic_name(partitions.topic_id) or "",
                partitions=partitions.partitions,
            )
            for partitions in self._owned(options.get("owns", ""))
        ]
        return b"\0\1" + encode(ConsumerProtocolSubscription(topics=topics, owned_partitions=owned), 1)

    def _assignment(self, word: str) -> bytes:
        """t/0-2+u/1"""
        holding = {
            partitions.topic_id: partitions.partitions for partitions in self._owned(word.replace("+", ","))
        }
        return assignment_bytes(holding, self.bench.changing, b"\0\0")

    def _shown_assignment(self, assignment: bytes) -> str:
        return _assigned(assignment)

    def _shown_record(self, record: NewRecord) -> str:
        if version_of(record.key) == GROUP_METADATA_KEY and record.value is not None:
            classic = read(GroupMetadataValue, record.value)
            members = " ".join(
                f"{member.member_id}={_assigned(member.assignment)}" for member in classic.members
            )
            return f"classic generation={classic.generation} [{members}]"
        if version_of(record.key) not in formats.RECORDS.key_versions:
            return super()._shown_record(record)
        key, value = formats.RECORDS.read(*record)
        subject = _subject(key)
        if value is None:
            return f"{subject} deleted"
        match value:
            case formats.GroupValue():
                return f"{subject}={value.epoch}"
            case formats.TargetValue():
                return f"{subject}={value.assignment_epoch}"
            case formats.TargetMemberValue():
                return f"{subject}={self._places(value.topic_partitions)}"
            case formats.CurrentValue():
                state = MemberState(value.state).name.lower()
                revoking = value.partitions_pending_revocation
                back = f" gives back {self._places(revoking)}" if revoking else ""
                return f"{subject}={state}@{value.member_epoch} has {self._places(value.assigned_partitions)}{back}"
            case formats.RegexValue():
                return f"{subject}={','.join(value.topics) or 'nothing'}"
        return subject

    def _shown_answer(self, response: Any) -> str:
        if isinstance(response, SyncGroupResponse) and response.error_code == ErrorCode.NONE:
            return f"assigned {_assigned(bytes(response.assignment))}"
        return super()._shown_answer(response)


def _subject(key: formats.Key) -> str:
    match key:
        case formats.GroupKey():
            return "epoch"
        case formats.MemberKey():
            return f"member {key.member_id}"
        case formats.TargetKey():
            return "target-epoch"
        case formats.TargetMemberKey():
            return f"target {key.member_id}"
        case formats.CurrentKey():
            return f"current {key.member_id}"
        case formats.RegexKey():
            return f"regex {key.regular_expression}"
    return "partition-metadata"


def _assigned(data: bytes) -> str:
    parts = [
        f"{topic.topic}/{_runs(topic.partitions)}" for topic in read_assignment(data).assigned_partitions
    ]
    return ",".join(parts) or "nothing"


def _runs(numbers: Iterable[int]) -> str:
    """0-2+5"""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "+".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
