"""Changes of groups by an administrator: their offsets, and their members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.admin import group_members, groups
from odradek.client.admin.calls import Exchange, Failures
from odradek.client.admin.described_groups import described_groups
from odradek.client.admin.session import AdminSession
from odradek.client.groups.values import CommitFailedError, OffsetsToCommit, as_committable
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition


class GroupChanges:
    """Sends each change to the group's coordinator."""

    def __init__(self, session: AdminSession) -> None:
        self._session: Final = session

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
            session = self._session
            description = (await described_groups(session, session.by_group, [group_id], limit_s))[group_id]
            wanted = group_members.present_members(description.members)
        else:
            wanted = group_members.static_members(instance_ids)

        async def by(items: Mapping[object, object], left_s: float) -> dict[int, dict[object, object]]:
            coordinators = await self._session.by_group({group_id: None}, left_s) if items else ()
            return {broker: dict(items) for broker in coordinators}

        await self._session.each(
            "remove_group_members",
            wanted,
            timeout_s,
            lambda some, _: group_members.remove_members(group_id, some, reason),
            by=by,
            already=group_members.LEFT,
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
