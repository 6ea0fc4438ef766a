"""The Python client of Odradek and of any Kafka. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin
    from odradek.client.admin.quotas import QuotaEntity
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
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.consumer.consumer_record import ConsumerRecord
    from odradek.client.consumer.offset_lookup import OffsetAndTimestamp
    from odradek.client.consumer.subscription_state import EARLIEST, LATEST, MAX_TIMESTAMP
    from odradek.client.errors import (
        BrokerUnreachableError,
        BufferFullError,
        ClientBrokenError,
        ClientClosedError,
        ConcurrentUseError,
        DeliveryError,
        IllegalStateError,
        PartialFailureError,
        TimedOutError,
        WrongPeerError,
    )
    from odradek.client.groups.values import (
        CommitFailedError,
        GroupMetadata,
        OffsetAndMetadata,
        RebalanceListener,
    )
    from odradek.client.metrics import MetricName
    from odradek.client.producer.delivery import Delivery, RecordMetadata
    from odradek.client.producer.producer import Producer
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

_WHERE: Final = {
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
    "odradek.client.metrics": ("MetricName",),
    "odradek.client.producer.delivery": ("Delivery", "RecordMetadata"),
    "odradek.client.errors": (
        "BrokerUnreachableError",
        "BufferFullError",
        "ClientBrokenError",
        "ClientClosedError",
        "ConcurrentUseError",
        "DeliveryError",
        "IllegalStateError",
        "PartialFailureError",
        "TimedOutError",
        "WrongPeerError",
    ),
    "odradek.client.groups.values": (
        "CommitFailedError",
        "GroupMetadata",
        "OffsetAndMetadata",
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
    "Admin",
    "Append",
    "BrokerDescription",
    "BrokerUnreachableError",
    "BufferFullError",
    "ClientBrokenError",
    "ClientClosedError",
    "ClusterDescription",
    "CommitFailedError",
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
    "FatalTransactionError",
    "GroupMetadata",
    "IllegalStateError",
    "LogDirDescription",
    "MetricName",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartialFailureError",
    "PartitionDescription",
    "Producer",
    "ProducerFencedError",
    "QuotaEntity",
    "RebalanceListener",
    "RecordMetadata",
    "ReplicaLogDescription",
    "ResourceType",
    "ShareConsumer",
    "ShareRecord",
    "Subtract",
    "TimedOutError",
    "TopicDescription",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionIdentity",
    "WrongPeerError",
]


__getattr__ = lazy_names(globals(), _WHERE)
