"""Settings of who may do what, and of tokens by which others act for a user."""

from __future__ import annotations

from typing import Final

from odradek.config.definition import Bounds, SettingType, at_least
from odradek.config.section import (
    LOW,
    PER_BROKER,
    Boolean,
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
