"""Planted bugs of consumer groups (KIP-848): what such coordinators are known to get wrong."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import patch
from uuid import UUID

from tests.simulation.mutant import Patches, mutant

from odradek.groups.consumer import group as group_module
from odradek.groups.consumer import reconcile as reconcile_module
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.member import ConsumerGroupMember, Holding
from odradek.groups.consumer.reconcile import Owned
from odradek.groups.shard.kinds import CheckPartition, Committer
from odradek.shards import Moment

_SCENARIO = "consumer_groups"


@mutant("a partition is given on before its member has given it back", _SCENARIO)
def everything_is_free() -> Patches:
    def is_free(self: ConsumerGroup, topic: UUID, partition: int) -> bool:
        return True

    yield patch.object(ConsumerGroup, "is_free", is_free)


@mutant("a member is believed to have given back what it only should give back", _SCENARIO)
def revocation_is_not_awaited() -> Patches:
    def uses(owned: Owned | None, holding: Holding) -> bool:
        return False

    yield patch.object(reconcile_module, "_uses", uses)


@mutant("commits in any epoch are accepted from members of a consumer group", _SCENARIO)
def commit_in_any_epoch() -> Patches:
    def check(
        group_id: str, members: Mapping[str, ConsumerGroupMember], committer: Committer
    ) -> CheckPartition | None:
        return None

    yield patch.object(group_module, "check_commit", check)


@mutant("a coordinator that starts waits for ever for members of consumer groups that are gone", _SCENARIO)
def sessions_not_armed_again() -> Patches:
    def loaded(self: ConsumerGroup, now: Moment) -> None:
        return None

    yield patch.object(ConsumerGroup, "loaded", loaded)
