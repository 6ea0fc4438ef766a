"""Descriptions of groups whose kind the client does not know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from odradek.client.admin import groups
from odradek.client.admin.group_descriptions import GroupDescription
from odradek.client.admin.session import AdminSession
from odradek.client.errors import PartialFailureError
from odradek.model.errors import ErrorCode, KafkaError


async def described_groups(
    session: AdminSession,
    by_group: Callable[[Mapping[Any, Any], float], Awaitable[Any]],
    group_ids: list[str],
    timeout_s: float,
) -> dict[str, GroupDescription]:
    """In the new protocol first; in the classic one for groups that it does not know, or where the broker lacks it."""
    wanted: dict[str, None] = dict.fromkeys(group_ids)
    group_descriptions: dict[str, GroupDescription] = {}
    try:
        group_descriptions = await session.each(
            "describe_groups",
            wanted,
            timeout_s,
            None,
            by=by_group,
            ask_broker=lambda broker, some, _: groups.describe_consumer(some, broker),
        )
    except PartialFailureError as error:
        group_descriptions = dict(error.results)
    except KafkaError as error:
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
    rest = {group_id: None for group_id in wanted if group_id not in group_descriptions}
    classic: dict[str, GroupDescription] = await session.each(
        "describe_groups",
        rest,
        timeout_s,
        None,
        by=by_group,
        ask_broker=lambda broker, some, _: groups.describe_classic(some, broker),
    )
    return {group_id: (group_descriptions | classic)[group_id] for group_id in wanted}
