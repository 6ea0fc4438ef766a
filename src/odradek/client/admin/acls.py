"""ACLs: the messages, and how their answers are read."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from odradek.protocol.messages.security.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.protocol.messages.security.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from odradek.security.acls import Acl, AclFilter, AclPattern


def describe_acls(wanted: AclFilter) -> Exchange:
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )

    def read(response: DescribeAclsResponse) -> CallOutcome:
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message or "no ACLs are shown")
        outcome = CallOutcome.none()
        for resource in response.resources:
            pattern = AclPattern(
                AclResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
            )
            for acl in resource.acls:
                known = Acl(
                    pattern,
                    acl.principal,
                    acl.host,
                    AclOperation(acl.operation),
                    AclPermission(acl.permission_type),
                )
                outcome.results[known] = None
        return outcome

    return Exchange(request=request, answer=DescribeAclsResponse, read=read)


def create_acls(acls: Sequence[Acl]) -> Exchange:
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.pattern.resource_type,
                resource_name=acl.pattern.name,
                resource_pattern_type=acl.pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )

    def read(response: CreateAclsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for acl, created in zip(acls, response.results, strict=True):
            outcome.note(acl, created.error_code, created.error_message)
        return outcome

    return Exchange(request=request, answer=CreateAclsResponse, read=read)


def delete_acls(filters: Sequence[AclFilter]) -> Exchange:
    """Returns the exchange. Its results are the deleted ACLs; an error is one of a filter."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.name,
                pattern_type_filter=wanted.pattern_type,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            )
            for wanted in filters
        ]
    )

    def read(response: DeleteAclsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for wanted, filter_result in zip(filters, response.filter_results, strict=True):
            if filter_result.error_code:
                outcome.note(wanted, filter_result.error_code, filter_result.error_message)
            for gone in filter_result.matching_acls:
                outcome.results[_deleted(gone)] = None
        return outcome

    return Exchange(request=request, answer=DeleteAclsResponse, read=read)


def _deleted(gone: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        AclPattern(AclResourceType(gone.resource_type), gone.resource_name, PatternType(gone.pattern_type)),
        gone.principal,
        gone.host,
        AclOperation(gone.operation),
        AclPermission(gone.permission_type),
    )
