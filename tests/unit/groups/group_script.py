"""A small language for the life of a group, in text files that a person can read and rewrite (after etcd's datadriven tests).

    join A protocols=range
    advance 3000
    ----
    A: joined generation=1 leader=A#1 protocol=range members=A#1

A block is commands, a line of dashes, and their outcome: answers in the order in which they left, records that were
written. `tests/unit/groups/README.md` lists the commands. Member ids read `CLIENT#NUMBER`: the number counts the ids that
were given out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from tests.unit.groups.group_bench import GroupBench

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.operations import heartbeat, join, leave, sync
from odradek.groups.descriptions import describe_classic, groups_of, listed
from odradek.groups.offsets.committing import Commit, CommitRequest, commit
from odradek.groups.offsets.fetching import fetch
from odradek.groups.offsets.removing import (
    delete_group,
    delete_offsets,
    delete_topics,
    groups_with_offsets,
)
from odradek.groups.shard.formats import (
    GROUP_METADATA_KEY,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read,
    version_of,
)
from odradek.groups.shard.kinds import Caller, Committer
from odradek.groups.shard.offset_table import PartitionName
from odradek.groups.shard.settings import GroupSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import encode
from odradek.protocol.messages.groups.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.groups.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.shards import BatchProducer, NewRecord

GROUP = "g"
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9]*)#([0-9]+)")
_ID = re.compile(r"([A-Za-z][A-Za-z0-9]*)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Block:
    """Commands and what is expected of them, or a comment (without commands)."""

    text: tuple[str, ...]
    commands: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()


def parse(text: str) -> Iterator[Block]:
    """Blocks are separated by empty lines; a line that begins with # is a comment, and goes with its block."""
    for chunk in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = chunk.split("\n")
        notes = tuple(line for line in lines if line.startswith("#"))
        rest = [line for line in lines if not line.startswith("#")]
        if "----" in rest:
            at = rest.index("----")
            yield Block(notes, tuple(rest[:at]), tuple(rest[at + 1 :]))
        else:
            yield Block(notes, tuple(rest))


def rewritten(text: str, script: Script) -> str:
    """The text with the real outcome of its commands."""
    blocks = []
    for block in parse(text):
        lines = [*block.text, *block.commands]
        if block.commands:
            lines += ["----", *script.run(block.commands)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


class Script:
    """Runs commands against a bench."""

    def __init__(self) -> None:
        self.bench = GroupBench(GroupSettings(), topics={"t": 4, "u": 4})
        self._seen = 0

    def run(self, commands: tuple[str, ...]) -> list[str]:
        """The outcome of the commands, as lines."""
        lines = []
        for command in commands:
            name, *words = command.split()
            method: Callable[[list[str], dict[str, str]], str | None] = getattr(
                self, "do_" + name.replace("-", "_")
            )
            plain = [word for word in words if "=" not in word]
            options = dict(word.split("=", 1) for word in words if "=" in word)
            try:
                said = method(plain, options)
            except KafkaError as error:
                said = error.code.name
            if said is not None:
                lines.append(f"{' '.join([name, *plain])}: {said}")
            lines += self._news()
        return [_short(line) for line in lines]

    def _news(self) -> Iterator[str]:
        for batch in self.bench.batches:
            yield from (f"log: {self._shown_record(record)}" for record in batch)
        self.bench.batches.clear()
        for name, response in self.bench.answers.items():
            yield f"{name}: {self._shown_answer(response)}"
        self.bench.answers.clear()

    def _subscription(self, topics: list[str], options: dict[str, str]) -> bytes:
        return b"\0\0" + encode(ConsumerProtocolSubscription(topics=topics), 0)

    def _assignment(self, word: str) -> bytes:
        return word.encode()

    def _shown_assignment(self, assignment: bytes) -> str:
        return assignment.decode() or "-"

    def _shown_record(self, record: NewRecord) -> str:
        return _shown(record)

    def _shown_answer(self, response: Any) -> str:
        return _answered(response)

    # -- commands

    def do_settings(self, words: list[str], options: dict[str, str]) -> None:
        values = {key.replace("-", "_"): int(value) for key, value in options.items()}
        self.bench.settings = replace(self.bench.settings, **values)

    def do_join(self, words: list[str], options: dict[str, str]) -> None:
        """join CLIENT [member= instance= protocols= topics= type= session= rebalance= version= group=]"""
        topics = options.get("topics", "t").split(",")
        metadata = self._subscription(topics, options)
        names = options.get("protocols", "range").split(",")
        request = JoinGroupRequest(
            group_id=options.get("group", GROUP),
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            member_id=long_form(options.get("member", "")),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names if name],
        )
        caller = Caller(client_id=words[0], client_host="/h", api_version=int(options.get("version", "3")))
        ticket = self.bench.ticket(options.get("as", words[0]))
        self.bench.execute(partial(join, request=request, caller=caller, ticket=ticket))

    def do_sync(self, words: list[str], options: dict[str, str]) -> None:
        """sync MEMBER generation=N [instance= assign=MEMBER:WORD,... group= protocol= as=]"""
        pairs = [pair.split(":") for pair in options.get("assign", "").split(",") if pair]
        request = SyncGroupRequest(
            group_id=options.get("group", GROUP),
            generation_id=int(options["generation"]),
            member_id=long_form(words[0]),
            group_instance_id=options.get("instance"),
            protocol_name=options.get("protocol"),
            assignments=[
                SyncGroupRequestAssignment(member_id=long_form(member), assignment=self._assignment(word))
                for member, word in pairs
            ],
        )
        caller = Caller(client_id="", client_host="/h", api_version=5)
        ticket = self.bench.ticket(options.get("as", words[0].split("#")[0]))
        self.bench.execute(partial(sync, request=request, caller=caller, ticket=ticket))

    def do_heartbeat(self, words: list[str], options: dict[str, str]) -> str:
        request = HeartbeatRequest(
            group_id=options.get("group", GROUP),
            generation_id=int(options["generation"]),
            member_id=long_form(words[0]),
            group_instance_id=options.get("instance"),
        )
        return _code(self.bench.execute(partial(heartbeat, request=request)).error_code)

    def do_leave(self, words: list[str], options: dict[str, str]) -> str:
        """leave MEMBER... [instances=I,J]: members by id, and static ones by their instance id alone"""
        members = [MemberIdentity(member_id=long_form(word)) for word in words]
        members += [
            MemberIdentity(group_instance_id=instance)
            for instance in options.get("instances", "").split(",")
            if instance
        ]
        request = LeaveGroupRequest(group_id=options.get("group", GROUP), members=members)
        response = self.bench.execute(partial(leave, request=request))
        return " ".join(_code(member.error_code) for member in response.members)

    def do_commit(self, words: list[str], options: dict[str, str]) -> str:
        """commit PLACE=OFFSET... [member= generation= instance= metadata= retention= producer= version= group=]"""
        group_id = options.pop("group", GROUP)
        producer = options.pop("producer", None)
        committer = Committer(
            member_id=long_form(options.pop("member", "")),
            instance_id=options.pop("instance", None),
            generation=int(options.pop("generation", "-1")),
            api_version=int(options.pop("version", "8" if producer is None else "5")),
            is_transactional=producer is not None,
        )
        metadata = options.pop("metadata", None)
        retention_ms = int(options.pop("retention", "-1"))
        topics = self.bench.machine.dependencies.topics
        commits = [
            Commit(
                topic=place[0],
                partition=place[1],
                offset=int(offset),
                metadata=metadata,
                topic_id=topics.topic_id(place[0]) or UUID(int=0),
            )
            for place, offset in ((_place(key), value) for key, value in options.items())
        ]
        request = CommitRequest(
            group_id=group_id,
            committer=committer,
            commits=commits,
            retention_ms=retention_ms,
            producer=BatchProducer(int(producer), 0) if producer is not None else None,
        )
        verdicts = self.bench.execute(partial(commit, request=request))
        return " ".join(code.name for code in verdicts.values())

    def do_marker(self, words: list[str], options: dict[str, str]) -> None:
        """marker commit|abort producer=N"""
        self.bench.marker(int(options["producer"]), is_commit=words[0] == "commit")

    def do_fetch(self, words: list[str], options: dict[str, str]) -> str:
        """fetch [stable] [PLACE...] [group=]: all offsets when no place is given"""
        stable = "stable" in words
        wanted = {_place(word): UUID(int=0) for word in words if word != "stable"}
        fetched_offsets = self.bench.execute(
            partial(
                fetch,
                group_id=options.get("group", GROUP),
                member_id=None,
                member_epoch=-1,
                wanted=wanted or None,
                require_stable=stable,
            )
        )
        return (
            " ".join(
                f"{topic}/{partition}={record.offset}"
                if record.error is ErrorCode.NONE
                else f"{topic}/{partition}={record.error.name}"
                for (topic, partition), record in sorted(fetched_offsets.items())
            )
            or "nothing"
        )

    def do_delete_offsets(self, words: list[str], options: dict[str, str]) -> str:
        places = [_place(word) for word in words]
        group_id = options.get("group", GROUP)
        verdicts = self.bench.execute(partial(delete_offsets, group_id=group_id, partition_names=places))
        return " ".join(code.name for code in verdicts.values())

    def do_delete_group(self, words: list[str], options: dict[str, str]) -> str:
        done = self.bench.execute(partial(delete_group, group_id=options.get("group", GROUP)))
        return "done" if done else "more"

    def do_topic_deleted(self, words: list[str], options: dict[str, str]) -> None:
        group_ids = self.bench.execute(groups_with_offsets)
        self.bench.execute(partial(delete_topics, topics=frozenset(words), group_ids=group_ids))

    def do_advance(self, words: list[str], options: dict[str, str]) -> None:
        self.bench.advance(int(words[0]))

    def do_restart(self, words: list[str], options: dict[str, str]) -> str | None:
        refused = self.bench.restart()
        return f"refuses {' '.join(map(str, refused))}" if refused else None

    def do_describe(self, words: list[str], options: dict[str, str]) -> str:
        group_id = options.get("group", GROUP)
        described = self.bench.execute(partial(describe_classic, group_id=group_id))
        group = self.bench.machine.groups[group_id]
        assert isinstance(group, ClassicGroup)
        members = " ".join(
            f"{member.member_id}={self._shown_assignment(member.assignment)}" for member in described.members
        )
        return f"{described.state} generation={group.generation} leader={group.leader_id} [{members}]"

    def do_list(self, words: list[str], options: dict[str, str]) -> str:
        groups = map(listed, self.bench.execute(groups_of))
        return (
            " ".join(f"{listed_group.group_id}:{listed_group.state}" for listed_group in groups) or "nothing"
        )


# -- how things read


def _code(code: int) -> str:
    return "ok" if code == ErrorCode.NONE else ErrorCode.of(code).name


def _place(text: str) -> PartitionName:
    topic, _, partition = text.partition("/")
    return topic, int(partition)


def long_form(member: str) -> str:
    """The member id behind `A#1`; other words stand for themselves."""
    return _NAME.sub(lambda match: f"{match[1]}-{UUID(int=int(match[2]))}", member)


def _short(text: str) -> str:
    return _ID.sub(lambda match: f"{match[1]}#{UUID(match[2]).int}", text)


def _answered(response: Any) -> str:
    if response.error_code != ErrorCode.NONE:
        code = _code(response.error_code)
        given = getattr(response, "member_id", "")
        return f"{code} member={given}" if given else code
    if isinstance(response, JoinGroupResponse):
        members = ",".join(member.member_id for member in response.members)
        parts = [
            f"joined generation={response.generation_id} member={response.member_id} leader={response.leader}",
            f"protocol={response.protocol_name}",
            *([f"members={members}"] if members else []),
            *(["skip-assignment"] if response.skip_assignment else []),
        ]
        return " ".join(parts)
    assert isinstance(response, SyncGroupResponse)
    return f"assigned {response.assignment.decode() or '-'}"


def _shown(record: NewRecord) -> str:
    if version_of(record.key) == GROUP_METADATA_KEY:
        name = read(GroupMetadataKey, record.key).group
        if record.value is None:
            return f"group {name} deleted"
        value = read(GroupMetadataValue, record.value)
        members = " ".join(
            f"{member.member_id}={member.assignment.decode() or '-'}" for member in value.members
        )
        return f"group {name} generation={value.generation} leader={value.leader} [{members}]"
    key = read(OffsetCommitKey, record.key)
    place = f"offset {key.group} {key.topic}/{key.partition}"
    if record.value is None:
        return f"{place} deleted"
    return f"{place}={read(OffsetCommitValue, record.value).offset}"
