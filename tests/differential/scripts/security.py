"""ACLs, SCRAM credentials and SASL on a cluster that has no security: what each of them answers."""

from tests.differential.asker import Asker

from odradek.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.security.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.security.describe_acls import DescribeAclsRequest
from odradek.protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

TOPIC, LITERAL, ANY_PATTERN, READ, ANY, ALLOW = 2, 3, 1, 3, 1, 3
SCRAM_SHA_256 = 1


def script(peer: Asker) -> None:
    for version in (1, 2, 3):
        every = DescribeAclsRequest(
            resource_type_filter=ANY, pattern_type_filter=ANY_PATTERN, operation=ANY, permission_type=ANY
        )
        peer.ask(f"describing ACLs, version {version}", every, version)
    acl_creation = AclCreation(
        resource_type=TOPIC,
        resource_name="se-one",
        resource_pattern_type=LITERAL,
        principal="User:a",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    peer.ask("creating an ACL", CreateAclsRequest(creations=[acl_creation]))
    peer.ask("creating two ACLs", CreateAclsRequest(creations=[acl_creation, acl_creation]))
    peer.ask("creating no ACL", CreateAclsRequest())
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC, pattern_type_filter=LITERAL, operation=ANY, permission_type=ANY
    )
    peer.ask("deleting ACLs", DeleteAclsRequest(filters=[wanted]))
    peer.ask("deleting no ACLs", DeleteAclsRequest())
    peer.ask("all credentials", DescribeUserScramCredentialsRequest(users=None))
    peer.ask("no credentials", DescribeUserScramCredentialsRequest(users=[]))
    peer.ask("credentials of no user", DescribeUserScramCredentialsRequest(users=[UserName(name="se-none")]))
    twice = [UserName(name="se-none"), UserName(name="se-none")]
    peer.ask("credentials of no user twice", DescribeUserScramCredentialsRequest(users=twice))
    away = ScramCredentialDeletion(name="se-none", mechanism=SCRAM_SHA_256)
    peer.ask("deleting a credential that is not there", AlterUserScramCredentialsRequest(deletions=[away]))
    unknown = away.replace(mechanism=9)
    peer.ask(
        "deleting a credential of an unknown kind", AlterUserScramCredentialsRequest(deletions=[unknown])
    )
    peer.ask(
        "deleting a credential of no user",
        AlterUserScramCredentialsRequest(deletions=[away.replace(name="")]),
    )
