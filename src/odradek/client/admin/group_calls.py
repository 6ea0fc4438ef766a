"""Admin calls about groups: their descriptions, offsets and members."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from odradek.client.admin import groups
from odradek.client.admin.calls import AlreadyDone, CallOutcome, Exchange, Failures
from odradek.client.admin.group_descriptions import (
    SHARE,
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
)
from odradek.client.admin.session import AdminSession
from odradek.client.groups.values import CommitFailedError, CommittedOffsets, OffsetsToCommit, as_committable
from odradek.client.network.errors import PartialFailureError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


class GroupCalls:
    """Asks each group's coordinator; every broker lists the groups that it coordinates."""

    def __init__(self, session: AdminSession) -> None:
        self._session: Final = session

    async def listings(
        self, states: Sequence[str], types: Sequence[str], timeout_s: float | None
    ) -> list[GroupListing]:
        """Returns the groups of all brokers, sorted."""
        answers = await self._session.everywhere(
            "list_groups", timeout_s, lambda broker, _, __: groups.list_groups(broker, states, types)
        )
        return sorted(
            (listing for listings in answers.values() for listing in listings),
            key=lambda listing: str(listing.group_id),
        )

    async def describe(
        self, group_ids: Iterable[str], timeout_s: float | None
    ) -> dict[str, GroupDescription]:
        """Describes groups of any kind."""
        await self._session.start()
        return await _described_groups(
            self._session, list(dict.fromkeys(group_ids)), self._session.limit_s(timeout_s)
        )

    async def delete(self, group_ids: Iterable[str], timeout_s: float | None) -> None:
        """Deletes groups without members."""
        await self._session.each(
            "delete_groups",
            dict.fromkeys(group_ids),
            timeout_s,
            groups.delete_groups,
            by=self._session.by_group,
        )

    async def offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        require_stable: bool,
        timeout_s: float | None,
    ) -> CommittedOffsets:
        """Returns committed offsets, by default for all partitions."""
        limit_s = self._session.limit_s(timeout_s)
        store = await self._session.offsets_of(group_id, limit_s)
        return await store.fetch_by_ids(partitions, limit_s, require_stable=require_stable)

    async def alter_offsets(self, group_id: str, offsets: OffsetsToCommit, timeout_s: float | None) -> None:
        """Commits offsets for a group without members."""
        wanted, limit_s = as_committable(offsets), self._session.limit_s(timeout_s)
        store = await self._session.offsets_of(group_id, limit_s)
        try:
            await store.commit(wanted, limit_s)
        except CommitFailedError as error:
            raise KafkaError(
                error.code, f"group {group_id!r} has members: its offsets can be set only while it has none"
            ) from None

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout_s: float | None
    ) -> None:
        """Deletes committed offsets."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        await self._whole(
            "delete_group_offsets", group_id, groups.delete_offsets(group_id, wanted), timeout_s
        )

    async def alter_share_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> None:
        """Moves the start offsets of a share group."""
        wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        exchange = groups.alter_share_offsets(group_id, wanted)
        await self._whole("alter_share_group_offsets", group_id, exchange, timeout_s)

    async def delete_share_offsets(
        self, group_id: str, topics: Iterable[str], timeout_s: float | None
    ) -> None:
        """Deletes the state of a share group in whole topics."""
        exchange = groups.delete_share_offsets(group_id, dict.fromkeys(topics))
        await self._whole("delete_share_group_offsets", group_id, exchange, timeout_s)

    async def remove_members(
        self, group_id: str, instance_ids: Iterable[str] | None, reason: str | None, timeout_s: float | None
    ) -> None:
        """Removes static members, or all members that the group has now."""
        if instance_ids is None:
            await self._session.start()
            limit_s = self._session.limit_s(timeout_s)
            descriptions = await _described_groups(self._session, [group_id], limit_s)
            wanted = _present_members(descriptions[group_id].members)
        else:
            wanted = _static_members(instance_ids)

        async def by(items: Mapping[object, object], left_s: float) -> dict[int, dict[object, object]]:
            coordinators = await self._session.by_group({group_id: None}, left_s) if items else ()
            return {broker: dict(items) for broker in coordinators}

        await self._session.each(
            "remove_group_members",
            wanted,
            timeout_s,
            lambda some, _: _remove_members(group_id, some, reason),
            by=by,
            already=_LEFT,
        )

    async def _whole(self, what: str, group_id: str, exchange: Exchange, timeout_s: float | None) -> None:
        """Makes one request about the group; errors of single items are final."""
        response = await self._session.each(
            what,
            {group_id: None},
            timeout_s,
            lambda _, __: exchange.whole(group_id),
            by=self._session.by_group,
        )
        Failures(what, response[group_id].errors).raise_or(response[group_id].results)


# -- descriptions of groups whose kind the client does not know

_DescribeOf = Callable[[Mapping[str, object], int], Exchange]


async def _described_groups(
    session: AdminSession, group_ids: list[str], timeout_s: float
) -> dict[str, GroupDescription]:
    """Asks as for consumer groups; then as for share groups, and for streams groups, those that are none, or where the broker
    lacks that request.

    The rest are asked for as classic groups, whose errors count.
    """

    async def described(describe: _DescribeOf, rest: Mapping[str, None]) -> dict[str, GroupDescription]:
        def request(broker: int, some: Mapping[str, object], _: float) -> Exchange:
            return describe(some, broker)

        return await session.each(
            "describe_groups", rest, timeout_s, None, by=session.by_group, ask_broker=request
        )

    known: dict[str, GroupDescription] = {}
    rest = dict.fromkeys(group_ids)
    for describe in (groups.describe_consumer, groups.describe_share, groups.describe_streams):
        known |= await _some(described(describe, rest))
        rest = {group_id: None for group_id in rest if group_id not in known}
    shares = {group_id: None for group_id in known if known[group_id].type == SHARE}
    start_offsets = await session.each(
        "describe_groups", shares, timeout_s, lambda some, _: groups.share_offsets(some), by=session.by_group
    )
    for group_id in shares:
        known[group_id] = replace(known[group_id], start_offsets=start_offsets[group_id])
    try:
        known |= await described(groups.describe_classic, rest)
    except PartialFailureError as error:
        raise PartialFailureError("describe_groups", error.errors, {**known, **error.results}) from None
    except KafkaError as error:
        if not known:
            raise
        errors = dict.fromkeys(rest, error.as_outcome())
        raise PartialFailureError("describe_groups", errors, known) from None
    return {group_id: known[group_id] for group_id in group_ids}


async def _some(descriptions: Awaitable[dict[str, GroupDescription]]) -> dict[str, GroupDescription]:
    """Returns the groups that are of the kind that was asked for."""
    try:
        return await descriptions
    except PartialFailureError as error:
        return dict(error.results)
    except KafkaError as error:
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
        return {}


# -- removal of members (KIP-345)

_REASON: Final = "member was removed by an admin"
_REASON_CHARS_MAX: Final = 255
"""Clients cut longer reasons off (KIP-800)."""

_LEFT: Final = AlreadyDone(code=ErrorCode.UNKNOWN_MEMBER_ID, result=lambda member: None)
"""The outcome of a removal whose first answer was lost."""


def _static_members(instance_ids: Iterable[str]) -> dict[str, MemberIdentity]:
    """Returns the identity of each static member, by `group.instance.id`."""
    return {name: MemberIdentity(group_instance_id=name) for name in instance_ids}


def _present_members(members: Iterable[GroupMemberDescription]) -> dict[str, MemberIdentity]:
    """Returns identities by member id. A static member that restarts meanwhile has a new id: it is named by its instance."""
    return {
        member.member_id: MemberIdentity(group_instance_id=member.group_instance_id)
        if member.group_instance_id is not None
        else MemberIdentity(member_id=member.member_id)
        for member in members
    }


def _remove_members(group_id: str, wanted: Mapping[str, MemberIdentity], reason: str | None) -> Exchange:
    """Returns the exchange. An error of the whole answer is the error of each member."""
    words = f"{_REASON}: {reason}" if reason else _REASON
    members = [identity.replace(reason=words[:_REASON_CHARS_MAX]) for identity in wanted.values()]
    subjects = {_identity(identity): subject for subject, identity in wanted.items()}

    def read(response: LeaveGroupResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            error = KafkaError(code, f"group {group_id!r}: {code.meaning}")
            outcome.errors.update(dict.fromkeys(wanted, error))
            return outcome
        for member in response.members:
            subject = subjects.get(_identity(member))
            if subject is not None:
                outcome.note(subject, member.error_code, _nicer(group_id, member.error_code))
        return outcome

    request = LeaveGroupRequest(group_id=group_id, members=members)
    return Exchange(request=request, answer=LeaveGroupResponse, read=read)


def _identity(member: MemberIdentity | MemberResponse) -> tuple[str | None, str | None]:
    """Returns the instance id of a static member, whose member id brokers may add, or the member id."""
    name = member.group_instance_id
    return (name, None) if name is not None else (None, member.member_id)


def _nicer(group_id: str, code: int) -> str | None:
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return f"group {group_id!r} has no such member, or it is no group of consumers"
    return None
