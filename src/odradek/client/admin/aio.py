"""The asynchronous admin client: a method for each administrative call. What it sends is in `*_calls.py`, by resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from odradek.client.admin import acls as acl_requests
from odradek.client.admin import delegation_tokens, quotas, users
from odradek.client.admin.arguments import checks_arguments
from odradek.client.admin.calls import Failures
from odradek.client.admin.cluster_calls import ClusterCalls
from odradek.client.admin.delegation_tokens import IssuedToken
from odradek.client.admin.group_calls import GroupCalls
from odradek.client.admin.group_descriptions import GroupDescription, GroupListing
from odradek.client.admin.quorum import (
    QuorumDescription,
)
from odradek.client.admin.quotas import QuotaChanges, QuotaEntity
from odradek.client.admin.reassignments import ReassignmentDescription
from odradek.client.admin.session import AdminSession
from odradek.client.admin.topic_calls import TopicCalls
from odradek.client.admin.transaction_calls import TransactionCalls
from odradek.client.admin.transaction_descriptions import (
    FeatureDescription,
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.admin.types import (
    ClusterDescription,
    ClusterOperations,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDirDescription,
    NewTopic,
    ResourceType,
    TopicDescription,
)
from odradek.client.admin.users import UserChanges
from odradek.client.consumer.offset_lookup import OffsetAndTimestamp
from odradek.client.groups.values import (
    CommittedOffsets,
    OffsetsToCommit,
)
from odradek.client.settings.options import AdminOptions
from odradek.client.settings.settings import AdminSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.ids import TopicPartition
from odradek.model.public import public
from odradek.runtime.ports import Clock, Entropy
from odradek.security.acls import Acl, AclFilter


@public("odradek")
class AsyncAdmin:
    """Administers a cluster from one event loop.

    A call about one thing raises that thing's KafkaError; a call about several raises PartialFailureError, which holds the
    outcome of each. Calls retry what is worth retrying for `timeout_s`, by default default.api.timeout.ms.
    """

    @with_settings(AdminSettings, AdminOptions)
    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[AdminOptions],
    ) -> None:
        self._session = AdminSession(AdminSettings.of(bootstrap_servers, dict(settings)), clock, entropy)
        self._topics = TopicCalls(self._session)
        self._cluster = ClusterCalls(self._session)
        self._groups = GroupCalls(self._session)
        self._transactions = TransactionCalls(self._session)

    @classmethod
    def from_config(cls, config: Mapping[str, object], **more: Unpack[AdminOptions]) -> Self:
        """Returns a client for a mapping with Kafka's names: `{"bootstrap.servers": "..."}`."""
        return cls(**AdminSettings.arguments(config), **more)

    async def start(self) -> None:
        """Begin to work on the running loop; other methods do so by themselves."""
        await self._session.start()

    async def close(self) -> None:
        """Closes the client's connections. Idempotent."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics; a plain name gets the broker's defaults."""
        return await self._topics.create(topics, validate_only, timeout_s)

    async def delete_topics(self, topics: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete topics and all their records."""
        await self._topics.delete(topics, timeout_s)

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Raise the number of partitions of each topic to the given total."""
        await self._topics.create_partitions(totals, validate_only, timeout_s)

    async def list_topics(self, *, internal: bool = False, timeout_s: float | None = None) -> list[str]:
        """Returns the names of all topics, sorted; those that Kafka keeps for itself only with `internal`."""
        return await self._topics.names(internal, timeout_s)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, operations: bool = False, timeout_s: float | None = None
    ) -> dict[str, TopicDescription]:
        """Describes topics, by default all that this user may see; with `operations` also what it may do to each (KIP-430)."""
        return await self._topics.describe(topics, operations, timeout_s)

    # -- settings

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        documentation: bool = False,
        synonyms: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Returns all settings of each resource, by name; `synonyms`: with those that they go back to (KIP-226)."""
        return await self._cluster.describe_configs(resources, documentation, synonyms, timeout_s)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change the named settings and leave the others: a str sets, None goes back to the default."""
        await self._cluster.alter_configs(changes, validate_only, timeout_s)

    # -- records and offsets

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1: all there are); returns where each partition now begins."""
        return await self._topics.delete_records(before, timeout_s)

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns offsets by time (milliseconds), or EARLIEST, LATEST, MAX_TIMESTAMP; offset -1 where no record is so new."""
        return await self._topics.offsets(wanted, isolation, timeout_s)

    # -- the cluster

    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """Describes the cluster: its brokers and its controller."""
        return await self._cluster.describe(timeout_s)

    async def describe_cluster_operations(self, *, timeout_s: float | None = None) -> ClusterOperations:
        """Returns what this client may do to the cluster as a whole (KIP-430); None where the brokers do not
        report it."""
        return await self._cluster.operations(timeout_s)

    async def describe_quorum(self, *, timeout_s: float | None = None) -> QuorumDescription:
        """Describes the quorum that decides about the cluster: its leader, its voters, and the brokers that follow it."""
        return await self._cluster.quorum(timeout_s)

    async def unregister_broker(self, broker: int, *, timeout_s: float | None = None) -> None:
        """Makes the cluster forget a broker that is down and will not return. BROKER_ID_NOT_REGISTERED: there is none.

        Its partitions keep their replicas on it until `reassign_partitions` moves them.
        """
        await self._cluster.unregister(broker, timeout_s)

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_s: float | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Returns the contents of each broker's data directories, of all brokers by default."""
        return await self._cluster.log_dirs(brokers, timeout_s)

    # -- elections, features

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, bool]:
        """Give leadership back to preferred replicas (or, `unclean`, to any); returns False where it was so already."""
        return await self._topics.elect_leaders(partitions, unclean, timeout_s)

    async def describe_features(self, *, timeout_s: float | None = None) -> dict[str, FeatureDescription]:
        """Returns the features that brokers know, and the levels that the cluster has agreed on."""
        return await self._cluster.features(timeout_s)

    async def update_features(
        self, levels: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Raise or lower finalized levels; they change together or not at all."""
        await self._cluster.update_features(levels, validate_only, timeout_s)

    # -- quotas, settings, directories

    async def describe_quotas(
        self, entity: QuotaEntity | None = None, *, timeout_s: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the limits of an entity, and of those that name more than it does; of everyone without one."""
        exchange = quotas.describe_quotas(entity or QuotaEntity())
        return dict((await self._session.one("describe_quotas", timeout_s, exchange)).results)

    async def alter_quotas(
        self, changes: QuotaChanges, *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Set limits by Kafka's names, and remove those that are None; the others stay."""
        response = await self._session.one(
            "alter_quotas", timeout_s, quotas.alter_quotas(changes, validate_only)
        )
        Failures("alter_quotas", response.errors).raise_or(response.results)

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout_s: float | None = None
    ) -> list[Acl]:
        """Returns the ACLs that a filter selects; all of them without one."""
        exchange = acl_requests.describe_acls(wanted or AclFilter())
        return list((await self._session.one("describe_acls", timeout_s, exchange)).results)

    async def create_acls(self, acls: Sequence[Acl], *, timeout_s: float | None = None) -> None:
        """Adds ACLs; every broker applies them when this returns. One that exists already stays."""
        response = await self._session.one("create_acls", timeout_s, acl_requests.create_acls(acls))
        Failures("create_acls", response.errors).raise_or(response.results)

    async def delete_acls(self, filters: Sequence[AclFilter], *, timeout_s: float | None = None) -> list[Acl]:
        """Remove the ACLs that match any of the filters, and return them."""
        response = await self._session.one("delete_acls", timeout_s, acl_requests.delete_acls(filters))
        return list(Failures("delete_acls", response.errors).raise_or(response.results))

    async def describe_users(self, *, timeout_s: float | None = None) -> dict[str, dict[str, int]]:
        """Returns the users that may log in by SCRAM, and their iterations by mechanism."""
        return dict((await self._session.one("describe_users", timeout_s, users.describe_users())).results)

    async def alter_users(self, changes: UserChanges, *, timeout_s: float | None = None) -> None:
        """Set passwords (`NewPassword`); delete the credentials of the mechanism that is named in place of one."""
        response = await self._session.one("alter_users", timeout_s, users.alter_users(changes))
        Failures("alter_users", response.errors).raise_or(response.results)

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int = -1,
        timeout_s: float | None = None,
    ) -> IssuedToken:
        """Creates a token that others can log in with, to act for its owner (`User:NAME`), by default this user (KIP-48)."""
        exchange = delegation_tokens.create_token(owner, renewers, max_lifetime_ms)
        token: IssuedToken = (
            await self._session.one("create_delegation_token", timeout_s, exchange)
        ).results["token"]
        return token

    async def renew_delegation_token(
        self, hmac: bytes, *, period_ms: int = -1, timeout_s: float | None = None
    ) -> int:
        """Renews a token for this long, by default as long as it may last; returns when it expires, in ms since 1970."""
        exchange = delegation_tokens.renew_token(hmac, period_ms)
        return int(
            (await self._session.one("renew_delegation_token", timeout_s, exchange)).results["expires_ms"]
        )

    async def expire_delegation_token(
        self, hmac: bytes, *, period_ms: int = -1, timeout_s: float | None = None
    ) -> None:
        """Lets the token end after this long; by default now."""
        exchange = delegation_tokens.expire_token(hmac, period_ms)
        await self._session.one("expire_delegation_token", timeout_s, exchange)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> list[IssuedToken]:
        """Returns the tokens that this user may see, of these owners (`User:NAME`) or of all."""
        exchange = delegation_tokens.describe_tokens(owners)
        return list(
            (await self._session.one("describe_delegation_tokens", timeout_s, exchange)).results.values()
        )

    async def list_config_resources(
        self, kinds: Iterable[ResourceType] = (), *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """Returns the resources with settings; groups and subscriptions to metrics, if they have settings of their own. Brokers
        before Kafka 4.1 list subscriptions alone: UNSUPPORTED_VERSION for other `kinds`, or for all."""
        return await self._cluster.config_resources(kinds, timeout_s)

    async def move_replicas(
        self, broker: int, paths: Mapping[TopicPartition, str], *, timeout_s: float | None = None
    ) -> None:
        """Begin to move partitions between data directories of a broker; `describe_log_dirs` shows how far they are."""
        await self._cluster.move_replicas(broker, paths, timeout_s)

    # -- groups

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout_s: float | None = None
    ) -> list[GroupListing]:
        """Returns all groups, sorted; `states` (Stable, Empty, ...) and `types` (classic, consumer, share, streams) filter."""
        return await self._groups.listings(states, types, timeout_s)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription]:
        """Describes groups, classic or not: their state, assignor and members."""
        return await self._groups.describe(group_ids, timeout_s)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete groups without members, and all their offsets."""
        await self._groups.delete(group_ids, timeout_s)

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> CommittedOffsets:
        """Returns the group's committed offsets, by default for all partitions; None where it has none.

        Offsets of a topic that was deleted and made again count no more, where brokers take topic ids (Kafka 4.1).
        `require_stable` waits for the end of transactions that commit some of them (KIP-447).
        """
        return await self._groups.offsets(group_id, partitions, require_stable, timeout_s)

    async def alter_group_offsets(
        self, group_id: str, offsets: OffsetsToCommit, *, timeout_s: float | None = None
    ) -> None:
        """Set committed offsets, and make the group if need be. Refused while it has members."""
        await self._groups.alter_offsets(group_id, offsets, timeout_s)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> None:
        """Deletes committed offsets. Refused for topics that members of the group are subscribed to."""
        await self._groups.delete_offsets(group_id, partitions, timeout_s)

    async def remove_group_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Removes static members by their `group.instance.id`, by default all members, from a group of consumers (KIP-345).

        A member that still runs joins again; `reason` goes to the coordinator's log. UNKNOWN_MEMBER_ID: the group has no such
        member, or is a share or streams group, or has members of the consumer protocol and a broker before Kafka 4.0.
        """
        await self._groups.remove_members(group_id, instance_ids, reason, timeout_s)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Sets a share group's start offsets, and creates the group if needed. Refused while it has members
        (KIP-932)."""
        await self._groups.alter_share_offsets(group_id, offsets, timeout_s)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> None:
        """Makes a share group forget what it read of topics. Refused while it has members (KIP-932)."""
        await self._groups.delete_share_offsets(group_id, topics, timeout_s)

    # -- transactions

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int | None = None,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """Returns the transactional ids of all brokers, sorted; with `duration_ms`, those open for so long; with `pattern`,
        those whose names match."""
        return await self._transactions.listings(states, producer_ids, duration_ms, pattern, timeout_s)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Describes transactional ids: their state, producer and partitions."""
        return await self._transactions.describe(transactional_ids, timeout_s)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """Returns the producers that each partition remembers, and where their open transactions begin."""
        return await self._transactions.describe_producers(partitions, timeout_s)

    async def abort_transaction(
        self, open_transaction: OpenTransaction, *, timeout_s: float | None = None
    ) -> None:
        """Write the abort marker that a hanging transaction lacks in one partition: for transactions no one else will end."""
        await self._transactions.abort(open_transaction, timeout_s)

    async def fence_producers(
        self,
        transactional_ids: Iterable[str],
        *,
        transaction_timeout_ms: int = 60_000,
        timeout_s: float | None = None,
    ) -> dict[str, TransactionIdentity]:
        """Shut out the producers of these ids and abort what they left open; returns who each id belongs to from now on."""
        return await self._transactions.fence(transactional_ids, transaction_timeout_ms, timeout_s)

    async def end_transactions(
        self,
        identities: Iterable[TransactionIdentity],
        *,
        committed: bool,
        timeout_s: float | None = None,
    ) -> None:
        """Commit or abort transactions that were prepared elsewhere. Idempotent until an id is used again.

        ProducerFencedError: a newer producer uses the id, or the transaction took longer than its timeout.
        """
        await self._transactions.end(identities, committed, timeout_s)

    async def send_offsets_to_transaction(
        self,
        identity: TransactionIdentity,
        group_id: str,
        offsets: OffsetsToCommit,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Make a group's offsets part of a transaction that `end_transactions` ends; they begin it if need be.

        An offset whose `topic_id` belongs to a deleted topic is left out, with a warning."""
        await self._transactions.send_offsets(identity, group_id, offsets, timeout_s)

    async def identity_after_commit(
        self, committed: TransactionIdentity, *, timeout_s: float | None = None
    ) -> TransactionIdentity | None:
        """Returns who may use the transactional id once this transaction is committed; None if only `fence_producers` can tell.

        With transaction.version 2 (KIP-890) each transaction ends its epoch: no coordinator is asked.
        """
        return await self._transactions.after_commit(committed, timeout_s)

    # -- moves between brokers

    async def reassign_partitions(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels a move.

        `list_reassignments` shows what is under way. INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
        """
        await self._topics.reassign(replicas, timeout_s)

    async def list_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ReassignmentDescription]:
        """Returns all moves under way."""
        return await self._topics.reassignments(timeout_s)


checks_arguments(AsyncAdmin)
