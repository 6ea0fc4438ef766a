"""The authorizer of a broker: made of its settings, and kept up to date with the cluster's ACLs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.broker.requests.context import BrokerContext
from odradek.cluster.image import ClusterImage
from odradek.config.access import AccessConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.security.authorizer import AclAuthorizer, Authorizer, make_authorizer

NO_AUTHORIZER: Final = "no authorizer is configured on this broker: every client may do everything"
_ELSEWHERE: Final = "this broker's authorizer does not decide by ACLs: its rules are kept elsewhere"


def authorizer_of(config: AccessConfig, originals: Mapping[str, str]) -> Authorizer | None:
    """Makes the authorizer with all of the broker's settings, as in Kafka. Raises ConfigError when it cannot be made."""
    settings = {
        **originals,
        "super.users": config.super_users,
        "allow.everyone.if.no.acl.found": str(config.allow_everyone_if_no_acl_found).lower(),
        "odradek.authorizer.file": config.odradek_authorizer_file,
        "odradek.closed.topic.suffixes": ",".join(config.odradek_closed_topic_suffixes),
    }
    return make_authorizer(config.authorizer_class_name, settings)


def update_acls(authorizer: Authorizer, image: ClusterImage) -> None:
    """Replaces the authorizer's ACLs by the image's."""
    if isinstance(authorizer, AclAuthorizer):
        authorizer.update(image.acls)


def check_keeps_acls(broker: BrokerContext) -> None:
    """Raises SECURITY_DISABLED where ACLs would decide nothing."""
    if not isinstance(broker.authorizer, AclAuthorizer):
        message = NO_AUTHORIZER if broker.authorizer is None else _ELSEWHERE
        raise KafkaError(ErrorCode.SECURITY_DISABLED, message)
