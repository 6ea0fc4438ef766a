"""Administration of groups and of what they have committed, asynchronously."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek.client.admin import groups
from odradek.client.admin.calls import Failures
from odradek.client.admin.group_descriptions import GroupDescription, GroupListing
from odradek.client.admin.session import AdminSession
from odradek.client.errors import PartialFailureError
from odradek.client.groups.coordinator import GROUP, Coordinator
from odradek.client.groups.offset_store import OffsetStore
from odradek.client.groups.values import (
    CommitFailedError,
    CommittedOffsets,
    GroupMetadata,
    OffsetsToCommit,
    as_committable,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition


class GroupAdministration(AdminSession):
    """Groups, classic or not."""

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout_s: float | None = None
    ) -> list[GroupListing]:
        """The groups of all brokers, sorted; `states` (Stable, Empty, ...) and `types` (classic, consumer, share) filter."""
        told = await self._everywhere(
            "list_groups", timeout_s, lambda broker, _, __: groups.list_groups(broker, states, types)
        )
        return sorted(
            (each for found in told.values() for each in found), key=lambda each: str(each.group_id)
        )

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription]:
        """State, assignor and members of groups, classic or not."""
        await self.start()
        limit_s = self._patience_s if timeout_s is None else timeout_s
        return await self._describe_groups(list(dict.fromkeys(group_ids)), limit_s)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete groups without members, and all their offsets."""
        await self._each(
            "delete_groups", dict.fromkeys(group_ids), timeout_s, groups.delete_groups, by=self._by_group
        )

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> CommittedOffsets:
        """What the group has committed, by default for all partitions; None where it has not."""
        store = await self._offsets_of(group_id)
        limit_s = self._patience_s if timeout_s is None else timeout_s
        return await store.fetch(partitions, limit_s, require_stable=False)

    async def alter_group_offsets(
        self, group_id: str, offsets: OffsetsToCommit, *, timeout_s: float | None = None
    ) -> None:
        """Set committed offsets, and make the group if need be. Refused while it has members."""
        store = await self._offsets_of(group_id)
        limit_s = self._patience_s if timeout_s is None else timeout_s
        try:
            await store.commit(as_committable(offsets), limit_s)
        except CommitFailedError as error:
            raise KafkaError(
                error.code, f"group {group_id!r} has members: its offsets can be set only while it has none"
            ) from None

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> None:
        """Forget committed offsets. Refused for topics that members of the group are subscribed to."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        told = await self._each(
            "delete_group_offsets",
            {group_id: None},
            timeout_s,
            lambda _, __: groups.delete_offsets(group_id, wanted).whole(group_id),
            by=self._by_group,
        )
        Failures("delete_group_offsets", told[group_id].errors).raise_or(told[group_id].results)

    async def _by_group(self, items: Mapping[Any, Any], timeout_s: float) -> Any:
        return await self._calls.by_coordinator(GROUP, items, timeout_s)

    async def _describe_groups(self, group_ids: list[str], timeout_s: float) -> dict[str, GroupDescription]:
        """In the new protocol first; who is not found there, or where there is none of it, in the classic one."""
        wanted: dict[str, None] = dict.fromkeys(group_ids)
        found: dict[str, GroupDescription] = {}
        try:
            found = await self._each(
                "describe_groups",
                wanted,
                timeout_s,
                None,
                by=self._by_group,
                ask_broker=lambda broker, some, _: groups.describe_consumer(some, broker),
            )
        except PartialFailureError as error:
            found = dict(error.results)
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        rest = {group_id: None for group_id in wanted if group_id not in found}
        classic: dict[str, GroupDescription] = await self._each(
            "describe_groups",
            rest,
            timeout_s,
            None,
            by=self._by_group,
            ask_broker=lambda broker, some, _: groups.describe_classic(some, broker),
        )
        return {group_id: (found | classic)[group_id] for group_id in wanted}

    async def _offsets_of(self, group_id: str) -> OffsetStore:
        await self.start()
        await self._cluster.connection()
        coordinator = Coordinator(self._cluster, group_id, GROUP)
        nobody = GroupMetadata(group_id=group_id)
        return OffsetStore(self._cluster, coordinator, who=lambda: nobody, fenced=lambda code: None)
