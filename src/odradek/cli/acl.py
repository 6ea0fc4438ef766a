"""`odradek acl`: who may do what; list, add, remove, explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from odradek import client
from odradek.cli.access import open_admin
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import print_json, print_table, remark, say
from odradek.client import ConfigResource
from odradek.model.errors import KafkaError
from odradek.model.near_names import near_name
from odradek.protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from odradek.security.acl_decision import DECIDING_SETTINGS, AclDecision, AclJudge, DecidedBy
from odradek.security.acls import Acl, AclFilter, AclPattern, canonical_host, new_acl

Command = TypeVar("Command", bound=Callable[..., object])

_KINDS: Final = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "cluster": AclResourceType.CLUSTER,
    "transactional-id": AclResourceType.TRANSACTIONAL_ID,
    "token": AclResourceType.DELEGATION_TOKEN,
    "user": AclResourceType.USER,
}
_KIND_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def _wrong(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())


def _resource(text: str) -> tuple[AclResourceType, str]:
    """Parses a resource such as `topic:orders` or `cluster`."""
    kind, colon, name = text.partition(":")
    if kind not in _KINDS:
        meant = near_name(kind, _KINDS)
        hint = f"did you mean {meant}?" if meant else f"write one of {', '.join(_KINDS)}"
        raise _wrong(f"there is no kind of resource {kind!r}; {hint}")
    if kind == "cluster":
        return _KINDS[kind], CLUSTER_NAME
    if not colon or not name:
        raise _wrong(f"which {kind}? write {kind}:NAME, or {kind}:* for all")
    return _KINDS[kind], name


def _operations(text: str, kind: AclResourceType) -> list[AclOperation]:
    known = {"all": AclOperation.ALL} | {
        operation.name.lower().replace("_", "-"): operation for operation in OPERATIONS_OF[kind]
    }
    results = []
    for part in text.lower().replace("_", "-").split(","):
        if part not in known:
            raise _wrong(f"{part!r} cannot be done to a {_KIND_NAMES[kind]}; there is {', '.join(known)}")
        results.append(known[part])
    return results


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _rule_options(command: Command) -> Command:
    for option in (
        click.option(
            "--host",
            default="*",
            show_default=True,
            metavar="ADDRESS",
            help="Let the rule hold for this client address only.",
        ),
        click.option("--deny", is_flag=True, help="Forbid it instead: a DENY beats every ALLOW."),
        click.option(
            "--prefix", is_flag=True, help="Let the rule hold for every resource whose name begins with NAME."
        ),
    ):
        command = option(command)
    return command


def _acls(user: str, operations: str, resource: str, *, host: str, deny: bool, prefix: bool) -> list[Acl]:
    kind, name = _resource(resource)
    try:
        return [
            new_acl(
                resource_type=kind,
                resource_name=name,
                pattern_type=PatternType.PREFIXED if prefix else PatternType.LITERAL,
                principal=_principal(user),
                host=host,
                operation=operation,
                permission=AclPermission.DENY if deny else AclPermission.ALLOW,
            )
            for operation in _operations(operations, kind)
        ]
    except KafkaError as error:
        raise _wrong(error.message) from None


@click.group()
def acl() -> None:
    """List, add, remove and explain access rules: who may do what.

    RESOURCE is topic:NAME, group:NAME, transactional-id:NAME or cluster; NAME * is all of them. OPERATIONS are words with
    commas between them: read, write, create, delete, alter, describe, describe-configs, alter-configs, all. USER is a name,
    or a principal such as User:alice; User:* is everyone.
    """


@acl.command("list")
@click.argument("resource", required=False)
@click.option("--user", metavar="USER", help="List the rules of this user only.")
@bootstrap_option
@json_option
def list_(resource: str | None, user: str | None, bootstrap: str, as_json: bool) -> None:
    """List access rules: all, or those that are about RESOURCE."""
    wanted = AclFilter(principal=None if user is None else _principal(user))
    if resource is not None:
        kind, name = _resource(resource)
        wanted = AclFilter(
            resource_type=kind, name=name, pattern_type=PatternType.MATCH, principal=wanted.principal
        )
    with open_admin(bootstrap) as admin:
        acls = sorted(admin.describe_acls(wanted))
    if as_json:
        print_json([_as_json(listed) for listed in acls])
    elif acls:
        print_table(
            ("user", "rule", "operation", "resource", "host"),
            [
                (
                    listed.principal,
                    listed.permission.name.lower(),
                    listed.operation.name.lower().replace("_", "-"),
                    _text(listed.pattern),
                    listed.host,
                )
                for listed in acls
            ],
        )
    else:
        say("There are no access rules.")


def _as_json(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name,
        "operation": acl.operation.name,
        "resource_type": acl.pattern.resource_type.name,
        "resource_name": acl.pattern.name,
        "pattern_type": acl.pattern.pattern_type.name,
        "host": acl.host,
    }


def _text(pattern: AclPattern) -> str:
    longer = "..." if pattern.pattern_type is PatternType.PREFIXED else ""
    return f"{_KIND_NAMES.get(pattern.resource_type, pattern.resource_type.name)}:{pattern.name}{longer}"


@acl.command()
@click.argument("user")
@click.argument("operations")
@click.argument("resource")
@_rule_options
@bootstrap_option
def add(user: str, operations: str, resource: str, bootstrap: str, **rule: Any) -> None:
    """Allow USER to do OPERATIONS to RESOURCE, or forbid it with --deny."""
    acls = _acls(user, operations, resource, **rule)
    with open_admin(bootstrap) as admin:
        admin.create_acls(acls)
    for created_acl in acls:
        remark(str(created_acl))


@acl.command()
@click.argument("user")
@click.argument("operations")
@click.argument("resource")
@_rule_options
@bootstrap_option
def remove(user: str, operations: str, resource: str, bootstrap: str, **rule: Any) -> None:
    """Remove rules: the same words as for `add`."""
    acls = _acls(user, operations, resource, **rule)
    with open_admin(bootstrap) as admin:
        gone = admin.delete_acls([AclFilter.only(removed_acl) for removed_acl in acls])
    for removed_acl in gone:
        remark(f"removed: {removed_acl}")
    if not gone:
        remark("there was no such rule")


@acl.command()
@click.argument("user")
@click.argument("operation")
@click.argument("resource")
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The client's address."
)
@bootstrap_option
def explain(user: str, operation: str, resource: str, host: str, bootstrap: str) -> None:
    """Tell whether USER may do OPERATION to RESOURCE, and which rule decides."""
    kind, name = _resource(resource)
    (wanted,) = _operations(operation, kind)
    with open_admin(bootstrap) as admin:
        acls = admin.describe_acls(AclFilter(resource_type=kind, name=name, pattern_type=PatternType.MATCH))
        settings = _settings(admin)
    decision = AclJudge(acls, settings).decide(_principal(user), _address(host), wanted, kind, name)
    verb = "may" if decision.is_allowed else "may not"
    say(f"{_principal(user)} {verb} {operation} {_text(AclPattern(kind, name))} from {host}:")
    for reason in _reasons(decision, _principal(user), settings):
        say(f"  {reason}")


def _address(host: str) -> str:
    try:
        return canonical_host(host)
    except ValueError:
        raise _wrong(f"--host {host}: {host!r} is no address") from None


def _settings(admin: client.Admin) -> dict[str, str] | None:
    """Returns the brokers' settings; None when we may not see them."""
    broker = ConfigResource.broker(admin.describe_cluster().controller_id)
    try:
        entries = admin.describe_configs([broker])[broker]
    except KafkaError:
        return None
    return {key: entry.value or "" for key in DECIDING_SETTINGS if (entry := entries.get(key)) is not None}


def _reasons(decision: AclDecision, principal: str, settings: Mapping[str, str] | None) -> list[str]:
    is_free = (settings or {}).get("allow.everyone.if.no.acl.found") == "true"
    lines = {
        DecidedBy.SUPER_USER: [f"{principal} is a super user (super.users): no rule counts"],
        DecidedBy.RULES: [str(acl) for acl in decision.rules],
        DecidedBy.NO_RULE_ALLOWS: ["there are rules about it, and none allows it"],
        DecidedBy.NO_RULES: [
            f"no rule is about it, and allow.everyone.if.no.acl.found is {str(is_free).lower()}"
        ],
        DecidedBy.CLOSED: ["the topic is closed: only a rule that names it counts (docs/authorization.md)"],
    }[decision.by]
    if not decision.knows_settings:
        lines.append("the brokers' settings are not shown to you: whether this is a super user is unknown")
    return lines
