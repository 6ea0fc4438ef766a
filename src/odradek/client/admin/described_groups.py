"""Descriptions of groups whose kind the client does not know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from odradek.client.admin import groups
from odradek.client.admin.calls import Exchange, GroupItems
from odradek.client.admin.group_descriptions import SHARE, GroupDescription
from odradek.client.admin.session import AdminSession
from odradek.client.network.errors import PartialFailureError
from odradek.model.errors import ErrorCode, KafkaError

DescribeOf = Callable[[Mapping[str, object], int], Exchange]


async def described_groups(
    session: AdminSession,
    by_group: GroupItems,
    group_ids: list[str],
    timeout_s: float,
) -> dict[str, GroupDescription]:
    """Asks as for consumer groups; then as for share groups, and for streams groups, those that are none, or where the broker
    lacks that request.

    The rest are asked for as classic groups, whose errors count.
    """

    async def described(describe: DescribeOf, rest: Mapping[str, None]) -> dict[str, GroupDescription]:
        def request(broker: int, some: Mapping[str, object], _: float) -> Exchange:
            return describe(some, broker)

        return await session.each("describe_groups", rest, timeout_s, None, by=by_group, ask_broker=request)

    known: dict[str, GroupDescription] = {}
    rest = dict.fromkeys(group_ids)
    for describe in (groups.describe_consumer, groups.describe_share, groups.describe_streams):
        known |= await _some(described(describe, rest))
        rest = {group_id: None for group_id in rest if group_id not in known}
    shares = {group_id: None for group_id in known if known[group_id].type == SHARE}
    start_offsets = await session.each(
        "describe_groups", shares, timeout_s, lambda some, _: groups.share_offsets(some), by=by_group
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
