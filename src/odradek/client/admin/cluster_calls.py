"""Admin calls about the cluster and its brokers: quorum, features, data directories, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.admin import quotas, requests, transactions
from odradek.client.admin.calls import Failures
from odradek.client.admin.quorum import UNREGISTERED, QuorumDescription, describe_quorum, unregister_broker
from odradek.client.admin.session import AdminSession
from odradek.client.admin.transaction_descriptions import FeatureDescription
from odradek.client.admin.types import (
    ClusterDescription,
    ClusterOperations,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    LogDirDescription,
    ResourceType,
)
from odradek.model.ids import TopicPartition


class ClusterCalls:
    """Asks the controller, any broker, or the broker that a call is about."""

    def __init__(self, session: AdminSession) -> None:
        self._session: Final = session

    async def describe(self, timeout_s: float | None) -> ClusterDescription:
        """Describes the brokers and the controller."""
        await self._session.start()
        limit_s = self._session.limit_s(timeout_s)
        return requests.cluster_of(await self._session.cluster.metadata.refresh(limit_s))

    async def operations(self, timeout_s: float | None) -> ClusterOperations:
        """Returns what this client may do to the cluster as a whole."""
        exchange = requests.cluster_operations()
        response = await self._session.one("describe_cluster_operations", timeout_s, exchange)
        return requests.operations_in(response)

    async def quorum(self, timeout_s: float | None) -> QuorumDescription:
        """Describes the quorum's leader, voters and observers."""
        description: QuorumDescription = (
            await self._session.one("describe_quorum", timeout_s, describe_quorum())
        ).results["quorum"]
        return description

    async def unregister(self, broker: int, timeout_s: float | None) -> None:
        """Removes the registration of a broker that is down."""
        await self._session.each(
            "unregister_broker", {broker: None}, timeout_s, unregister_broker, already=UNREGISTERED
        )

    async def features(self, timeout_s: float | None) -> dict[str, FeatureDescription]:
        """Returns the features that brokers know, with their levels."""
        response = await self._session.one("describe_features", timeout_s, transactions.describe_features())
        return dict(response.results)

    async def update_features(
        self, levels: Mapping[str, int], validate_only: bool, timeout_s: float | None
    ) -> None:
        """Changes finalized levels, all or none."""
        current = {name: feature.finalized for name, feature in (await self.features(None)).items()}
        limit_s = self._session.limit_s(timeout_s)
        exchange = transactions.update_features(levels, current, validate_only, limit_s)
        response = await self._session.one("update_features", timeout_s, exchange)
        Failures("update_features", response.errors).raise_or(response.results)

    async def log_dirs(
        self, brokers: Iterable[int] | None, timeout_s: float | None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Returns the contents of each broker's data directories."""
        await self._session.start()
        limit_s = self._session.limit_s(timeout_s)
        if brokers is None:
            brokers = (await self._session.cluster.metadata.refresh(limit_s)).brokers
        return await self._session.each(
            "describe_log_dirs",
            dict.fromkeys(brokers),
            timeout_s,
            requests.describe_log_dirs,
            by=self._session.calls.by_itself,
        )

    async def move_replicas(
        self, broker: int, paths: Mapping[TopicPartition, str], timeout_s: float | None
    ) -> None:
        """Begins to move partitions between data directories of one broker."""
        response = await self._session.each(
            "move_replicas",
            {broker: paths},
            timeout_s,
            lambda some, _: quotas.move_replicas(some[broker]).whole(broker),
            by=self._session.calls.by_itself,
        )
        Failures("move_replicas", response[broker].errors).raise_or(response[broker].results)

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        documentation: bool,
        synonyms: bool,
        timeout_s: float | None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Returns all settings of each resource, by name."""
        return await self._session.each(
            "describe_configs",
            dict.fromkeys(resources),
            timeout_s,
            lambda some, _: requests.describe_configs(some, documentation, synonyms),
            by=self._session.calls.by_config_owner,
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        validate_only: bool,
        timeout_s: float | None,
    ) -> None:
        """Changes the settings that are named; the others stay."""
        await self._session.each(
            "alter_configs",
            changes,
            timeout_s,
            lambda some, _: requests.alter_configs(some, validate_only),
            by=self._session.calls.by_config_owner,
        )

    async def config_resources(
        self, kinds: Iterable[ResourceType], timeout_s: float | None
    ) -> list[ConfigResource]:
        """Returns the resources that have settings."""
        exchange = quotas.list_config_resources(list(kinds))
        return list((await self._session.one("list_config_resources", timeout_s, exchange)).results)
