"""Odradek: a Kafka-wire-compatible, durable commit log, with Python clients and a Spark pipeline.

The names below are imported when first used, so that `import odradek` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.client import (
        AcknowledgeType,
        Admin,
        CommitFailedError,
        ConfigResource,
        Consumer,
        ConsumerRecord,
        Delivery,
        NewTopic,
        OffsetAndMetadata,
        PartialFailureError,
        Producer,
        ProducerFencedError,
        RebalanceListener,
        RecordMetadata,
        ShareConsumer,
        ShareRecord,
    )
    from odradek.client.aio import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer
    from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
    from odradek.model.ids import TopicPartition
    from odradek.model.version import __version__
    from odradek.notebook.show import show

_WHERE: Final = {
    "odradek.client": (
        "AcknowledgeType",
        "Admin",
        "CommitFailedError",
        "ConfigResource",
        "Consumer",
        "ConsumerRecord",
        "Delivery",
        "NewTopic",
        "OffsetAndMetadata",
        "PartialFailureError",
        "Producer",
        "ProducerFencedError",
        "RebalanceListener",
        "RecordMetadata",
        "ShareConsumer",
        "ShareRecord",
    ),
    "odradek.client.aio": ("AsyncAdmin", "AsyncConsumer", "AsyncProducer", "AsyncShareConsumer"),
    "odradek.model.errors": ("ConfigError", "ErrorCode", "KafkaError", "OdradekError"),
    "odradek.model.ids": ("TopicPartition",),
    "odradek.model.version": ("__version__",),
    "odradek.notebook.show": ("show",),
}

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "CommitFailedError",
    "ConfigError",
    "ConfigResource",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "ErrorCode",
    "KafkaError",
    "NewTopic",
    "OdradekError",
    "OffsetAndMetadata",
    "PartialFailureError",
    "Producer",
    "ProducerFencedError",
    "RebalanceListener",
    "RecordMetadata",
    "ShareConsumer",
    "ShareRecord",
    "TopicPartition",
    "__version__",
    "show",
]


__getattr__ = lazy_names(globals(), _WHERE)


def __dir__() -> list[str]:
    return __all__
