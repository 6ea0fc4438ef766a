"""Closed topics, which hold a program's commands or state: changing them requires a rule that means them.

A rule about `topic:*` is about data. It does not open a topic from which a program of ours takes what to run, or what it kept.

- **Topics of the system**: `__odradek_*`, the command topics of SQL servers, and `_schemas`. A rule means one of them if it
  names the topic, or a prefix that only such topics have. `__odradek_audit` is for super users alone.
- **State of an application**: names that end in one of `odradek.closed.topic.suffixes`, as the changelog and repartition topics
  of Kafka Streams and of `odradek.streams` do. A rule means one of them if it names the topic or a prefix: Kafka's own
  advice is a prefixed rule for the id of the application.

Reading and creating them goes by Kafka's rules alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.protocol.acls import AclOperation, PatternType
from odradek.security.acls import WILDCARD, AclPattern
from odradek.security.audit import AUDIT_TOPIC

INTERNAL_PREFIX: Final = "__odradek_"
"""Every topic that Odradek itself makes in a cluster has a name that begins so, except the command topics of
SQL servers."""
SQL_PREFIX: Final = "_odradek-sql-"
SCHEMAS_TOPIC: Final = "_schemas"
CLOSED_SUFFIXES: Final = ("-changelog", "-repartition")
CLOSED_OPERATIONS: Final = frozenset(
    {AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS}
)
_AUDIT_READING: Final = frozenset({AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS})
_SYSTEM_PREFIXES: Final = (INTERNAL_PREFIX, SQL_PREFIX)


def is_of_the_system(topic: str) -> bool:
    """Tells whether the topic holds what Odradek or a schema registry does, not data of users."""
    return topic.startswith(_SYSTEM_PREFIXES) or topic == SCHEMAS_TOPIC


def is_closed(topic: str, operation: AclOperation, suffixes: Sequence[str] = CLOSED_SUFFIXES) -> bool:
    """Tells whether the operation needs a rule that means the topic. `suffixes`: `odradek.closed.topic.suffixes`."""
    if topic == AUDIT_TOPIC:
        return operation not in _AUDIT_READING
    if operation not in CLOSED_OPERATIONS:
        return False
    return is_of_the_system(topic) or (bool(suffixes) and topic.endswith(tuple(suffixes)))


def means(pattern: AclPattern, topic: str) -> bool:
    """Tells whether a rule of this pattern, which covers the closed topic, is meant for it."""
    if topic == AUDIT_TOPIC or pattern.name == WILDCARD:
        return False
    if pattern.pattern_type is PatternType.LITERAL:
        return pattern.name == topic
    if not topic.startswith(pattern.name):
        return False
    return not is_of_the_system(topic) or is_of_the_system(pattern.name)


def is_internal(topic: str) -> bool:
    """Returns whether a topic belongs to brokers or programs, by its name: Kafka's `__*`, the system's
    topics, an application's state. No record is sent to an internal topic because a header names it."""
    return topic.startswith("__") or is_of_the_system(topic) or topic.endswith(CLOSED_SUFFIXES)
