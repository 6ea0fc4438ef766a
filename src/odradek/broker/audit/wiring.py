"""The audit of a broker, made of its settings."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from odradek.broker.audit.sinks import AuditFileSink, AuditTopicSink
from odradek.broker.audit.trail import FLUSH_SECONDS, AuditSink, AuditTrail
from odradek.broker.audit.watching import RequestAudit
from odradek.broker.requests.context import BrokerContext
from odradek.broker.security.login import LoginAttempt
from odradek.config.broker import BrokerConfig
from odradek.model.ids import BrokerId
from odradek.security.audit import parse_rules

__all__ = ["FLUSH_SECONDS", "begin_audit", "note_login"]


def note_login(trail: AuditTrail, attempt: LoginAttempt) -> None:
    """Notes a login, or a failed attempt at one."""
    detail = attempt.mechanism if attempt.reason is None else f"{attempt.mechanism}: {attempt.reason}"
    trail.login(
        "done" if attempt.reason is None else "failed",
        principal=attempt.principal,
        host=attempt.host,
        listener=attempt.listener,
        detail=detail,
    )


def begin_audit(broker: BrokerContext, me: BrokerId, config: Callable[[], BrokerConfig]) -> AuditTrail:
    """Starts the audit of the broker. Raises ConfigError for rules that cannot be read."""
    audit = broker.config.audit
    parse_rules(audit.rules)
    sinks: list[AuditSink] = []
    if "file" in audit.sinks:
        path = audit.file or posixpath.join(broker.config.storage.log_dirs[0], "audit.log")
        sinks.append(
            AuditFileSink(
                path, broker.runtime, bytes_max=audit.file_bytes_max, count_max=audit.file_count_max
            )
        )
    if "topic" in audit.sinks:
        sinks.append(
            AuditTopicSink(
                lambda: broker.image,
                broker.replicas,
                broker.runtime,
                broker.cluster.create_topics,
                lambda: broker.coordinators.send_to_peer,
                me=me,
                partitions_min=audit.topic_partitions,
                retention_ms=audit.topic_retention_ms,
            )
        )
    trail = AuditTrail(lambda: config().audit, broker.runtime, sinks, me)
    broker.audit = RequestAudit(trail)
    return trail
