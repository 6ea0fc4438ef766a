"""The brokers of the transcripts."""

from typing import Final

VERSION: Final = "4.4.0"
"""The release whose tools, and whose output at its own broker, are recorded."""
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
}
"""What both brokers start with, beside their defaults. Some are Kafka's defaults, which its output would name as set here."""
