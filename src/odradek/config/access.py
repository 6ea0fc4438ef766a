"""Settings of who may do what."""

from __future__ import annotations

from odradek.config.section import LOW, Boolean, Section, String, section, setting


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
    odradek_authorizer_file: String = setting(default="", importance=LOW, meaning=
        "The file with the rules of odradek.broker.access.file_authorizer.FileAuthorizer.")
    # fmt: on
