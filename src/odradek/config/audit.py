"""Settings of the record of what was done."""

from __future__ import annotations

from odradek.config.definition import any_of, at_least, between
from odradek.config.section import CLUSTER_WIDE, Double, Int, List, Long, Section, String, section, setting


@section("odradek.audit.")
class AuditConfig(Section):
    """The record of what was done: administrative changes, logins, refusals and, by rule, data access."""

    # fmt: off
    sinks: List = setting(default=(), valid=any_of("file", "topic"), meaning=
        "Where audit events go: file, topic, or both. Not set: nowhere.")
    file: String = setting(default="", meaning=
        "The file of audit events, one JSON object a line. Not set: audit.log in the first of log.dirs.")
    file_bytes_max: Long = setting("odradek.audit.file.max.bytes", default=64 * 1024 * 1024, valid=at_least(1024), meaning=
        "The file is put aside when it is as large as this, and a new one begun.")
    file_count_max: Int = setting("odradek.audit.file.max.files", default=10, valid=at_least(1), meaning=
        "How many files that were put aside are kept.")
    topic_partitions: Int = setting(default=1, valid=at_least(1), meaning=
        "The fewest partitions that __odradek_audit is made with: it has one for each broker that there is then.")
    topic_retention_ms: Long = setting(default=30 * 24 * 3_600_000, valid=at_least(-1), meaning=
        "How long __odradek_audit keeps events, if this broker makes it.")
    rules: String = setting(default="", dynamic=CLUSTER_WIDE, meaning=
        "What is recorded beside changes, logins and refusals, and what is not: rules with ; between them, the first that fits "
        "decides. A rule is keep or drop, and any of api=, principal=, client=, resource=, outcome=, kind= with patterns, and "
        "sample=: keep api=Produce resource=TOPIC:orders* sample=0.01; drop principal=User:monitor.")
    sample: Double = setting(default=1.0, valid=between(0, 1), dynamic=CLUSTER_WIDE, meaning=
        "The share of refusals that is recorded, where no rule says otherwise: a client that is refused all the time "
        "fills no disk. Changes and logins are all recorded.")
    queue_max: Int = setting(default=10_000, valid=at_least(1), meaning=
        "Events that wait to be written. Those beyond are lost, and counted.")
    queue_bytes_max: Int = setting("odradek.audit.queue.max.bytes", default=16 * 1024 * 1024, valid=at_least(65_536), meaning=
        "Memory of the events that wait to be written. Those beyond are lost, and counted.")
    # fmt: on
