"""Settings of who may do what, of tokens by which others act for a user, and of the record of what was done."""

from __future__ import annotations

from typing import Final

from odradek.config.definition import Bounds, SettingType, any_of, at_least, between
from odradek.config.section import (
    CLUSTER_WIDE,
    LOW,
    PER_BROKER,
    Boolean,
    Double,
    Int,
    List,
    Long,
    Password,
    Section,
    String,
    section,
    setting,
)

DEFAULT_PRINCIPAL_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)

_AGE_MS_MIN: Final = 10_000


@section()
class AccessConfig(Section):
    """Settings for authorization."""

    # fmt: off
    authorizer_class_name: String = setting(default="", importance=LOW, meaning=
        "Who decides what clients may do: org.apache.kafka.metadata.authorizer.StandardAuthorizer for ACLs, or the import path "
        "of a Python class (odradek.security.authorizer.Authorizer says what it needs). Not set: all may do everything.")
    super_users: String = setting(default="", meaning=
        "Principals that may do everything, whatever the ACLs say: User:NAME, with ; between several. Brokers' own "
        "principals belong here.")
    allow_everyone_if_no_acl_found: Boolean = setting(default=False, meaning=
        "Whether all may use a resource that no ACL is about. With false only super users may.")
    principal_builder_class: String = setting(default=DEFAULT_PRINCIPAL_BUILDER, dynamic=PER_BROKER, as_started=True,
        type_=SettingType.CLASS, meaning=
        "Who a connection acts for: Kafka's own rule (the user that logged in, else the name in the client's certificate, else "
        "User:ANONYMOUS), or the import path of a Python class (odradek.security.principal_builder.PrincipalBuilder).")
    odradek_access_max_age_ms: Long = setting(default=0, valid=Bounds(
        allowed=f"0, or {_AGE_MS_MIN} or more", accepts=lambda value: value == 0 or value >= _AGE_MS_MIN), meaning=
        "Odradek's own: how long an access rule that was taken away may count at a broker that is cut off from the cluster. "
        "A broker that may not know the newest rules serves super users only, and hangs up on others. "
        "0: no limit, as in Kafka.")
    odradek_authorizer_file: String = setting(default="", importance=LOW, meaning=
        "The file with the rules of odradek.broker.access.file_authorizer.FileAuthorizer.")
    odradek_closed_topic_suffixes: List = setting(default=("-changelog", "-repartition"), importance=LOW, meaning=
        "Topics whose names end so hold the state of an application: to write, alter or delete one takes an ACL that names "
        "it, or a prefix of it. topic:* does not count. Empty: they are topics like others, as in Kafka.")
    # fmt: on


@section("delegation.token.")
class DelegationConfig(Section):
    """Tokens by which others act for a user for a while."""

    # fmt: off
    secret_key: Password | None = setting(default=None, meaning=
        "What tokens are made with: the same for all brokers. Not set: there are no delegation tokens.")
    max_lifetime_ms: Long = setting(default=7 * 86_400_000, valid=at_least(1), meaning=
        "How long a token counts at most, however often it is renewed.")
    expiry_time_ms: Long = setting(default=86_400_000, valid=at_least(1), meaning=
        "How long a token counts that is not renewed.")
    expiry_check_interval_ms: Long = setting(default=3_600_000, valid=at_least(1), importance=LOW, meaning=
        "How often tokens that are over are removed. None of them counts until then either.")
    # fmt: on


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
        "What is recorded in addition to changes, logins and refusals, and what is not: rules with ; between them, the first "
        "that fits decides. A rule is keep or drop, and any of api=, principal=, client=, resource=, outcome=, kind= with "
        "patterns, and sample=: keep api=Produce resource=TOPIC:orders* sample=0.01; drop principal=User:monitor.")
    sample: Double = setting(default=1.0, valid=between(0, 1), dynamic=CLUSTER_WIDE, meaning=
        "The share of refusals that is recorded, where no rule says otherwise: a client that is refused all the time "
        "fills no disk. Changes and logins are all recorded.")
    queue_max: Int = setting(default=10_000, valid=at_least(1), meaning=
        "Events that wait to be written. Those beyond are lost, and counted.")
    queue_bytes_max: Int = setting("odradek.audit.queue.max.bytes", default=16 * 1024 * 1024, valid=at_least(65_536), meaning=
        "Memory of the events that wait to be written. Those beyond are lost, and counted.")
    # fmt: on
