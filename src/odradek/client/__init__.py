"""The Python client of Odradek and of any Kafka: producer, consumer, admin. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
        DeliveryError,
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
    from odradek.client.producer.delivery import Delivery, RecordMetadata
    from odradek.client.producer.producer import Producer
    from odradek.client.transactions.prepared import TransactionIdentity
    from odradek.client.transactions.verdict import (
        FatalTransactionError,
        ProducerFencedError,
        TransactionAbortedError,
        TransactionError,
    )

_WHERE: Final = {
    "admin.admin": ("Admin",),
    "admin.quotas": ("QuotaEntity",),
    "admin.types": (
        "Append",
        "BrokerDescription",
        "ClusterDescription",
        "ConfigEntry",
        "ConfigResource",
        "ConfigSource",
        "CreatedTopic",
        "LogDirDescription",
        "NewTopic",
        "PartitionDescription",
        "ReplicaLogDescription",
        "ResourceType",
        "Subtract",
        "TopicDescription",
    ),
    "consumer.subscription_state": ("EARLIEST", "LATEST", "MAX_TIMESTAMP"),
    "consumer.consumer": ("Consumer",),
    "consumer.consumer_record": ("ConsumerRecord",),
    "producer.delivery": ("Delivery", "RecordMetadata"),
    "errors": (
        "BrokerUnreachableError",
        "BufferFullError",
        "ClientBrokenError",
        "ClientClosedError",
        "DeliveryError",
        "PartialFailureError",
        "TimedOutError",
        "WrongPeerError",
    ),
    "groups.values": ("CommitFailedError", "GroupMetadata", "OffsetAndMetadata", "RebalanceListener"),
    "consumer.offset_lookup": ("OffsetAndTimestamp",),
    "producer.producer": ("Producer",),
    "transactions.prepared": ("TransactionIdentity",),
    "transactions.verdict": (
        "FatalTransactionError",
        "ProducerFencedError",
        "TransactionAbortedError",
        "TransactionError",
    ),
}
_MODULES: Final = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "Append",
    "BrokerDescription",
    "BrokerUnreachableError",
    "BufferFullError",
    "ClientBrokenError",
    "ClientClosedError",
    "ClusterDescription",
    "CommitFailedError",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "Consumer",
    "ConsumerRecord",
    "CreatedTopic",
    "Delivery",
    "DeliveryError",
    "FatalTransactionError",
    "GroupMetadata",
    "LogDirDescription",
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
    "Subtract",
    "TimedOutError",
    "TopicDescription",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionIdentity",
    "WrongPeerError",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
