"""The Python client of Odradek and of any Kafka. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin
    from odradek.client.admin.delegation_tokens import IssuedToken
    from odradek.client.admin.group_descriptions import GroupDescription, GroupListing, GroupMemberDescription
    from odradek.client.admin.quorum import QuorumDescription, QuorumEndpoint, QuorumReplica
    from odradek.client.admin.quotas import QuotaEntity
    from odradek.client.admin.reassignments import ReassignmentDescription
    from odradek.client.admin.transaction_descriptions import (
        FeatureDescription,
        OpenTransaction,
        ProducerDescription,
        TransactionDescription,
        TransactionListing,
    )
    from odradek.client.admin.types import (
        Append,
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        ConfigSynonym,
        CreatedTopic,
        LogDirDescription,
        NewTopic,
        PartitionDescription,
        ReplicaLogDescription,
        ResourceType,
        Subtract,
        TopicDescription,
    )
    from odradek.client.admin.users import NewPassword
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.consumer.consumer_record import ConsumerRecord
    from odradek.client.consumer.core import Deserializer
    from odradek.client.consumer.offset_lookup import OffsetAndTimestamp
    from odradek.client.consumer.subscription_state import EARLIEST, LATEST, MAX_TIMESTAMP
    from odradek.client.groups.values import (
        CommitFailedError,
        CommittedOffsets,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetsToCommit,
        RebalanceListener,
    )
    from odradek.client.network.errors import (
        BrokerUnreachableError,
        BufferFullError,
        ClientBrokenError,
        ClientClosedError,
        ConcurrentUseError,
        DeliveryError,
        IllegalStateError,
        LoginError,
        PartialFailureError,
        TimedOutError,
        WrongArgumentError,
        WrongPeerError,
    )
    from odradek.client.network.metrics import MetricName
    from odradek.client.producer.delivery import Delivery, RecordMetadata
    from odradek.client.producer.partitioner import Partitioner
    from odradek.client.producer.producer import Producer
    from odradek.client.producer.record_input import HeaderInput, Serializer
    from odradek.client.share.acknowledgements import AcknowledgedOffsets
    from odradek.client.share.share_consumer import ShareConsumer
    from odradek.client.share.share_record import ShareRecord
    from odradek.client.transactions.error_actions import (
        FatalTransactionError,
        ProducerFencedError,
        TransactionAbortedError,
        TransactionError,
    )
    from odradek.client.transactions.prepared import TransactionIdentity
    from odradek.protocol.acknowledge_types import AcknowledgeType
    from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
    from odradek.records import TimestampType
    from odradek.security.acls import Acl, AclFilter, AclPattern

_WHERE: Final = {
    "odradek.client.admin.delegation_tokens": ("IssuedToken",),
    "odradek.client.admin.group_descriptions": (
        "GroupDescription",
        "GroupListing",
        "GroupMemberDescription",
    ),
    "odradek.client.admin.quorum": (
        "QuorumDescription",
        "QuorumEndpoint",
        "QuorumReplica",
    ),
    "odradek.client.admin.reassignments": ("ReassignmentDescription",),
    "odradek.client.admin.transaction_descriptions": (
        "FeatureDescription",
        "OpenTransaction",
        "ProducerDescription",
        "TransactionDescription",
        "TransactionListing",
    ),
    "odradek.client.admin.users": ("NewPassword",),
    "odradek.protocol.acls": (
        "AclOperation",
        "AclPermission",
        "AclResourceType",
        "PatternType",
    ),
    "odradek.security.acls": (
        "Acl",
        "AclFilter",
        "AclPattern",
    ),
    "odradek.client.consumer.core": ("Deserializer",),
    "odradek.client.producer.record_input": (
        "HeaderInput",
        "Serializer",
    ),
    "odradek.client.producer.partitioner": ("Partitioner",),
    "odradek.records": ("TimestampType",),
    "odradek.client.admin.admin": ("Admin",),
    "odradek.client.admin.quotas": ("QuotaEntity",),
    "odradek.client.admin.types": (
        "Append",
        "BrokerDescription",
        "ClusterDescription",
        "ConfigEntry",
        "ConfigResource",
        "ConfigSource",
        "ConfigSynonym",
        "CreatedTopic",
        "LogDirDescription",
        "NewTopic",
        "PartitionDescription",
        "ReplicaLogDescription",
        "ResourceType",
        "Subtract",
        "TopicDescription",
    ),
    "odradek.client.consumer.subscription_state": ("EARLIEST", "LATEST", "MAX_TIMESTAMP"),
    "odradek.client.consumer.consumer": ("Consumer",),
    "odradek.client.consumer.consumer_record": ("ConsumerRecord",),
    "odradek.client.network.metrics": ("MetricName",),
    "odradek.client.producer.delivery": ("Delivery", "RecordMetadata"),
    "odradek.client.network.errors": (
        "BrokerUnreachableError",
        "BufferFullError",
        "ClientBrokenError",
        "ClientClosedError",
        "ConcurrentUseError",
        "DeliveryError",
        "IllegalStateError",
        "LoginError",
        "PartialFailureError",
        "TimedOutError",
        "WrongArgumentError",
        "WrongPeerError",
    ),
    "odradek.client.groups.values": (
        "CommitFailedError",
        "CommittedOffsets",
        "GroupMetadata",
        "OffsetAndMetadata",
        "OffsetsToCommit",
        "RebalanceListener",
    ),
    "odradek.client.consumer.offset_lookup": ("OffsetAndTimestamp",),
    "odradek.client.producer.producer": ("Producer",),
    "odradek.client.share.acknowledgements": ("AcknowledgedOffsets",),
    "odradek.client.share.share_consumer": ("ShareConsumer",),
    "odradek.client.share.share_record": ("ShareRecord",),
    "odradek.protocol.acknowledge_types": ("AcknowledgeType",),
    "odradek.client.transactions.prepared": ("TransactionIdentity",),
    "odradek.client.transactions.error_actions": (
        "FatalTransactionError",
        "ProducerFencedError",
        "TransactionAbortedError",
        "TransactionError",
    ),
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AcknowledgeType",
    "AcknowledgedOffsets",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPattern",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "Append",
    "BrokerDescription",
    "BrokerUnreachableError",
    "BufferFullError",
    "ClientBrokenError",
    "ClientClosedError",
    "ClusterDescription",
    "CommitFailedError",
    "CommittedOffsets",
    "ConcurrentUseError",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "Consumer",
    "ConsumerRecord",
    "CreatedTopic",
    "Delivery",
    "DeliveryError",
    "Deserializer",
    "FatalTransactionError",
    "FeatureDescription",
    "GroupDescription",
    "GroupListing",
    "GroupMemberDescription",
    "GroupMetadata",
    "HeaderInput",
    "IllegalStateError",
    "IssuedToken",
    "LogDirDescription",
    "LoginError",
    "MetricName",
    "NewPassword",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetsToCommit",
    "OpenTransaction",
    "PartialFailureError",
    "PartitionDescription",
    "Partitioner",
    "PatternType",
    "Producer",
    "ProducerDescription",
    "ProducerFencedError",
    "QuorumDescription",
    "QuorumEndpoint",
    "QuorumReplica",
    "QuotaEntity",
    "ReassignmentDescription",
    "RebalanceListener",
    "RecordMetadata",
    "ReplicaLogDescription",
    "ResourceType",
    "Serializer",
    "ShareConsumer",
    "ShareRecord",
    "Subtract",
    "TimedOutError",
    "TimestampType",
    "TopicDescription",
    "TransactionAbortedError",
    "TransactionDescription",
    "TransactionError",
    "TransactionIdentity",
    "TransactionListing",
    "WrongArgumentError",
    "WrongPeerError",
]


__getattr__ = lazy_names(globals(), _WHERE)
