"""The synchronous admin client: the asynchronous one on a thread of its own.

Written by `make faces` from `aio.py`: change that one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.delegation_tokens import IssuedToken
from odradek.client.admin.group_descriptions import GroupDescription, GroupListing
from odradek.client.admin.quorum import (
    QuorumDescription,
)
from odradek.client.admin.quotas import QuotaChanges, QuotaEntity
from odradek.client.admin.reassignments import ReassignmentDescription
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
from odradek.client.network.loop_thread import LoopThread
from odradek.client.settings.options import AdminOptions
from odradek.client.settings.settings import AdminSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.ids import TopicPartition
from odradek.model.public import public
from odradek.runtime.ports import Clock, Entropy
from odradek.security.acls import Acl, AclFilter


@public("odradek")
class Admin:
    """Administers a cluster, from any thread.

        with Admin("127.0.0.1:9092") as admin:
            admin.create_topics([NewTopic("flights", partitions=3)])

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
        self._admin = AsyncAdmin(bootstrap_servers, clock=clock, entropy=entropy, **settings)
        self._loop = LoopThread("odradek-admin")
        self._closed = False

    @classmethod
    def from_config(cls, config: Mapping[str, object], **more: Unpack[AdminOptions]) -> Self:
        """Returns a client for a mapping with Kafka's names: `{"bootstrap.servers": "..."}`."""
        return cls(**AdminSettings.arguments(config), **more)

    def close(self) -> None:
        """Closes the client's connections. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._loop.is_gone:
                return
            try:
                self._loop.call(self._admin.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- topics

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics; a plain name gets the broker's defaults."""
        return self._loop.call(
            self._admin.create_topics(topics, validate_only=validate_only, timeout_s=timeout_s)
        )

    def delete_topics(self, topics: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete topics and all their records."""
        self._loop.call(self._admin.delete_topics(topics, timeout_s=timeout_s))

    def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Raise the number of partitions of each topic to the given total."""
        self._loop.call(
            self._admin.create_partitions(totals, validate_only=validate_only, timeout_s=timeout_s)
        )

    def list_topics(self, *, internal: bool = False, timeout_s: float | None = None) -> list[str]:
        """Returns the names of all topics, sorted; those that Kafka keeps for itself only with `internal`."""
        return self._loop.call(self._admin.list_topics(internal=internal, timeout_s=timeout_s))

    def describe_topics(
        self, topics: Iterable[str] | None = None, *, operations: bool = False, timeout_s: float | None = None
    ) -> dict[str, TopicDescription]:
        """Describes topics, by default all that this user may see; with `operations` also what it may do to each (KIP-430)."""
        return self._loop.call(
            self._admin.describe_topics(topics, operations=operations, timeout_s=timeout_s)
        )

    # -- settings

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        documentation: bool = False,
        synonyms: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Returns all settings of each resource, by name; `synonyms`: with those that they go back to (KIP-226)."""
        return self._loop.call(
            self._admin.describe_configs(
                resources, documentation=documentation, synonyms=synonyms, timeout_s=timeout_s
            )
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change the named settings and leave the others: a str sets, None goes back to the default."""
        self._loop.call(self._admin.alter_configs(changes, validate_only=validate_only, timeout_s=timeout_s))

    # -- records and offsets

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1: all there are); returns where each partition now begins."""
        return self._loop.call(self._admin.delete_records(before, timeout_s=timeout_s))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns offsets by time (milliseconds), or EARLIEST, LATEST, MAX_TIMESTAMP; offset -1 where no record is so new."""
        return self._loop.call(self._admin.list_offsets(wanted, isolation=isolation, timeout_s=timeout_s))

    # -- the cluster

    def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """Describes the cluster: its brokers and its controller."""
        return self._loop.call(self._admin.describe_cluster(timeout_s=timeout_s))

    def describe_cluster_operations(self, *, timeout_s: float | None = None) -> ClusterOperations:
        """Returns what this client may do to the cluster as a whole (KIP-430); None where the brokers do not
        report it."""
        return self._loop.call(self._admin.describe_cluster_operations(timeout_s=timeout_s))

    def describe_quorum(self, *, timeout_s: float | None = None) -> QuorumDescription:
        """Describes the quorum that decides about the cluster: its leader, its voters, and the brokers that follow it."""
        return self._loop.call(self._admin.describe_quorum(timeout_s=timeout_s))

    def unregister_broker(self, broker: int, *, timeout_s: float | None = None) -> None:
        """Makes the cluster forget a broker that is down and will not return. BROKER_ID_NOT_REGISTERED: there is none.

        Its partitions keep their replicas on it until `reassign_partitions` moves them.
        """
        self._loop.call(self._admin.unregister_broker(broker, timeout_s=timeout_s))

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_s: float | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Returns the contents of each broker's data directories, of all brokers by default."""
        return self._loop.call(self._admin.describe_log_dirs(brokers, timeout_s=timeout_s))

    # -- elections, features

    def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, bool]:
        """Give leadership back to preferred replicas (or, `unclean`, to any); returns False where it was so already."""
        return self._loop.call(self._admin.elect_leaders(partitions, unclean=unclean, timeout_s=timeout_s))

    def describe_features(self, *, timeout_s: float | None = None) -> dict[str, FeatureDescription]:
        """Returns the features that brokers know, and the levels that the cluster has agreed on."""
        return self._loop.call(self._admin.describe_features(timeout_s=timeout_s))

    def update_features(
        self, levels: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Raise or lower finalized levels; they change together or not at all."""
        self._loop.call(self._admin.update_features(levels, validate_only=validate_only, timeout_s=timeout_s))

    # -- quotas, settings, directories

    def describe_quotas(
        self, entity: QuotaEntity | None = None, *, timeout_s: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the limits of an entity, and of those that name more than it does; of everyone without one."""
        return self._loop.call(self._admin.describe_quotas(entity, timeout_s=timeout_s))

    def alter_quotas(
        self, changes: QuotaChanges, *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Set limits by Kafka's names, and remove those that are None; the others stay."""
        self._loop.call(self._admin.alter_quotas(changes, validate_only=validate_only, timeout_s=timeout_s))

    def describe_acls(self, wanted: AclFilter | None = None, *, timeout_s: float | None = None) -> list[Acl]:
        """Returns the ACLs that a filter selects; all of them without one."""
        return self._loop.call(self._admin.describe_acls(wanted, timeout_s=timeout_s))

    def create_acls(self, acls: Sequence[Acl], *, timeout_s: float | None = None) -> None:
        """Adds ACLs; every broker applies them when this returns. One that exists already stays."""
        self._loop.call(self._admin.create_acls(acls, timeout_s=timeout_s))

    def delete_acls(self, filters: Sequence[AclFilter], *, timeout_s: float | None = None) -> list[Acl]:
        """Remove the ACLs that match any of the filters, and return them."""
        return self._loop.call(self._admin.delete_acls(filters, timeout_s=timeout_s))

    def describe_users(self, *, timeout_s: float | None = None) -> dict[str, dict[str, int]]:
        """Returns the users that may log in by SCRAM, and their iterations by mechanism."""
        return self._loop.call(self._admin.describe_users(timeout_s=timeout_s))

    def alter_users(self, changes: UserChanges, *, timeout_s: float | None = None) -> None:
        """Set passwords (`NewPassword`); delete the credentials of the mechanism that is named in place of one."""
        self._loop.call(self._admin.alter_users(changes, timeout_s=timeout_s))

    def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int = -1,
        timeout_s: float | None = None,
    ) -> IssuedToken:
        """Creates a token that others can log in with, to act for its owner (`User:NAME`), by default this user (KIP-48)."""
        return self._loop.call(
            self._admin.create_delegation_token(
                owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms, timeout_s=timeout_s
            )
        )

    def renew_delegation_token(
        self, hmac: bytes, *, period_ms: int = -1, timeout_s: float | None = None
    ) -> int:
        """Renews a token for this long, by default as long as it may last; returns when it expires, in ms since 1970."""
        return self._loop.call(
            self._admin.renew_delegation_token(hmac, period_ms=period_ms, timeout_s=timeout_s)
        )

    def expire_delegation_token(
        self, hmac: bytes, *, period_ms: int = -1, timeout_s: float | None = None
    ) -> None:
        """Lets the token end after this long; by default now."""
        self._loop.call(self._admin.expire_delegation_token(hmac, period_ms=period_ms, timeout_s=timeout_s))

    def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> list[IssuedToken]:
        """Returns the tokens that this user may see, of these owners (`User:NAME`) or of all."""
        return self._loop.call(self._admin.describe_delegation_tokens(owners, timeout_s=timeout_s))

    def list_config_resources(
        self, kinds: Iterable[ResourceType] = (), *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """Returns the resources with settings; groups and subscriptions to metrics, if they have settings of their own. Brokers
        before Kafka 4.1 list subscriptions alone: UNSUPPORTED_VERSION for other `kinds`, or for all."""
        return self._loop.call(self._admin.list_config_resources(kinds, timeout_s=timeout_s))

    def move_replicas(
        self, broker: int, paths: Mapping[TopicPartition, str], *, timeout_s: float | None = None
    ) -> None:
        """Begin to move partitions between data directories of a broker; `describe_log_dirs` shows how far they are."""
        self._loop.call(self._admin.move_replicas(broker, paths, timeout_s=timeout_s))

    # -- groups

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout_s: float | None = None
    ) -> list[GroupListing]:
        """Returns all groups, sorted; `states` (Stable, Empty, ...) and `types` (classic, consumer, share, streams) filter."""
        return self._loop.call(self._admin.list_groups(states=states, types=types, timeout_s=timeout_s))

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription]:
        """Describes groups, classic or not: their state, assignor and members."""
        return self._loop.call(self._admin.describe_groups(group_ids, timeout_s=timeout_s))

    def delete_groups(self, group_ids: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete groups without members, and all their offsets."""
        self._loop.call(self._admin.delete_groups(group_ids, timeout_s=timeout_s))

    def list_group_offsets(
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
        return self._loop.call(
            self._admin.list_group_offsets(
                group_id, partitions, require_stable=require_stable, timeout_s=timeout_s
            )
        )

    def alter_group_offsets(
        self, group_id: str, offsets: OffsetsToCommit, *, timeout_s: float | None = None
    ) -> None:
        """Set committed offsets, and make the group if need be. Refused while it has members."""
        self._loop.call(self._admin.alter_group_offsets(group_id, offsets, timeout_s=timeout_s))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> None:
        """Deletes committed offsets. Refused for topics that members of the group are subscribed to."""
        self._loop.call(self._admin.delete_group_offsets(group_id, partitions, timeout_s=timeout_s))

    def remove_group_members(
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
        self._loop.call(
            self._admin.remove_group_members(group_id, instance_ids, reason=reason, timeout_s=timeout_s)
        )

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Sets a share group's start offsets, and creates the group if needed. Refused while it has members
        (KIP-932)."""
        self._loop.call(self._admin.alter_share_group_offsets(group_id, offsets, timeout_s=timeout_s))

    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> None:
        """Makes a share group forget what it read of topics. Refused while it has members (KIP-932)."""
        self._loop.call(self._admin.delete_share_group_offsets(group_id, topics, timeout_s=timeout_s))

    # -- transactions

    def list_transactions(
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
        return self._loop.call(
            self._admin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                duration_ms=duration_ms,
                pattern=pattern,
                timeout_s=timeout_s,
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Describes transactional ids: their state, producer and partitions."""
        return self._loop.call(self._admin.describe_transactions(transactional_ids, timeout_s=timeout_s))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """Returns the producers that each partition remembers, and where their open transactions begin."""
        return self._loop.call(self._admin.describe_producers(partitions, timeout_s=timeout_s))

    def abort_transaction(self, open_transaction: OpenTransaction, *, timeout_s: float | None = None) -> None:
        """Write the abort marker that a hanging transaction lacks in one partition: for transactions no one else will end."""
        self._loop.call(self._admin.abort_transaction(open_transaction, timeout_s=timeout_s))

    def fence_producers(
        self,
        transactional_ids: Iterable[str],
        *,
        transaction_timeout_ms: int = 60_000,
        timeout_s: float | None = None,
    ) -> dict[str, TransactionIdentity]:
        """Shut out the producers of these ids and abort what they left open; returns who each id belongs to from now on."""
        return self._loop.call(
            self._admin.fence_producers(
                transactional_ids, transaction_timeout_ms=transaction_timeout_ms, timeout_s=timeout_s
            )
        )

    def end_transactions(
        self,
        identities: Iterable[TransactionIdentity],
        *,
        committed: bool,
        timeout_s: float | None = None,
    ) -> None:
        """Commit or abort transactions that were prepared elsewhere. Idempotent until an id is used again.

        ProducerFencedError: a newer producer uses the id, or the transaction took longer than its timeout.
        """
        self._loop.call(self._admin.end_transactions(identities, committed=committed, timeout_s=timeout_s))

    def send_offsets_to_transaction(
        self,
        identity: TransactionIdentity,
        group_id: str,
        offsets: OffsetsToCommit,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Make a group's offsets part of a transaction that `end_transactions` ends; they begin it if need be.

        An offset whose `topic_id` belongs to a deleted topic is left out, with a warning."""
        self._loop.call(
            self._admin.send_offsets_to_transaction(identity, group_id, offsets, timeout_s=timeout_s)
        )

    def identity_after_commit(
        self, committed: TransactionIdentity, *, timeout_s: float | None = None
    ) -> TransactionIdentity | None:
        """Returns who may use the transactional id once this transaction is committed; None if only `fence_producers` can tell.

        With transaction.version 2 (KIP-890) each transaction ends its epoch: no coordinator is asked.
        """
        return self._loop.call(self._admin.identity_after_commit(committed, timeout_s=timeout_s))

    # -- moves between brokers

    def reassign_partitions(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels a move.

        `list_reassignments` shows what is under way. INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
        """
        self._loop.call(self._admin.reassign_partitions(replicas, timeout_s=timeout_s))

    def list_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ReassignmentDescription]:
        """Returns all moves under way."""
        return self._loop.call(self._admin.list_reassignments(timeout_s=timeout_s))

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self._loop.stop_soon()
