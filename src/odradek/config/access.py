"""Settings of who may do what."""

from __future__ import annotations

from typing import Final

from odradek.config.definition import SettingType
from odradek.config.section import LOW, PER_BROKER, Boolean, Section, String, section, setting

DEFAULT_PRINCIPAL_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)


@section()
class AccessConfig(Section):
    """Who may do what."""

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
    odradek_authorizer_file: String = setting(default="", importance=LOW, meaning=
        "The file with the rules of odradek.broker.access.file_authorizer.FileAuthorizer.")
    # fmt: on
