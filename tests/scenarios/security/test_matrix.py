"""The matrix: each API, version, resource and operation, allowed and refused in every way that ACLs know.

It is made of the table of access rules (`protocol/access.py`), so an API with new rows has cells at once. A cell asks one
request as one principal under a few ACLs, and looks for the error that the row names, or for what the row leaves out of the
answer.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene
from tests.scenarios.security.requests import GROUP, TOPIC, TRANSACTIONAL_ID, Names, request_of

from odradek.broker.requests.refusals import refusals
from odradek.cluster.image import NO_ACLS
from odradek.model.errors import ErrorCode
from odradek.protocol import APIS, Api
from odradek.protocol.access import ACCESS, AccessRule, Refusal
from odradek.protocol.acls import CLUSTER_NAME, AclPermission, AclResourceType, PatternType, RequiredAcl
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.security.acl_index import AclIndex, AclVerdict
from odradek.security.acls import Acl, AclPattern
from odradek.security.authorizer import AclAuthorizer

pytestmark = pytest.mark.check(35, 36, 37, 38, 39)
ME, HERE, ELSEWHERE = "User:ANONYMOUS", "127.0.0.1", "10.9.9.9"
SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "transaction_two_phase_commit_enable": "true",
    "unstable_api_versions_enable": "true",
}
NAMES = {
    AclResourceType.TOPIC: (TOPIC, "absent", "new-topic"),
    AclResourceType.GROUP: (GROUP, "modern", "sharers", "streamers"),
    AclResourceType.CLUSTER: (CLUSTER_NAME,),
    AclResourceType.TRANSACTIONAL_ID: (TRANSACTIONAL_ID,),
}
SHOWN_ELSEWHERE = {
    ("ShareAcknowledge", "READ TOPIC"): "needs a session: test_gate.py",
    ("DescribeTransactions", "DESCRIBE TOPIC"): "needs an open transaction: test_gate.py",
    (
        "CreateDelegationToken",
        "CREATE_TOKENS USER",
    ): "needs a login: tests/security/test_delegation_tokens.py",
    ("DescribeDelegationToken", "DESCRIBE DELEGATION_TOKEN"): "needs a login, too",
    ("DescribeDelegationToken", "DESCRIBE_TOKENS USER"): "needs a login, too",
    (
        "FindCoordinator",
        "CLUSTER_ACTION CLUSTER",
    ): "of shares, from version 6 on: `cells` leaves the others out",
}
ALLOWED, REFUSED = True, False
CASES = {
    "no ACLs": REFUSED,
    "allowed": ALLOWED,
    "allowed to all": ALLOWED,
    "allowed by a prefix": ALLOWED,
    "allowed everywhere": ALLOWED,
    "allowed from here": ALLOWED,
    "allowed from elsewhere": REFUSED,
    "allowed to another": REFUSED,
    "allowed and denied": REFUSED,
    "allowed and denied everywhere": REFUSED,
    "allowed and denied to all by a prefix": REFUSED,
    "super user": ALLOWED,
}
IN_EVERY_VERSION = ("no ACLs", "allowed")


@dataclass(frozen=True)
class Cell:
    api: Api
    version: int
    rule: AccessRule
    required: RequiredAcl
    case: str

    def __str__(self) -> str:
        acl = f"{self.required.operation.name} {self.required.resource.name}"
        return f"{self.api.name} v{self.version} {acl} of {self.rule.field or 'the cluster'} {self.rule.when}: {self.case}"


def cells(family: str) -> Iterator[Cell]:
    for api in APIS.values():
        if api.family != family or not api.served:
            continue
        for rule in ACCESS[api.name]:
            versions = [
                version
                for version in api.versions
                if version in rule.versions and is_possible(api, version, rule)
            ]
            if rule.refusal is Refusal.SHOWN or not versions:
                continue
            for version in versions:
                for required in rule.alternatives:
                    if (
                        api.name,
                        f"{required.operation.name} {required.resource.name}",
                    ) in SHOWN_ELSEWHERE and (api.name != "FindCoordinator"):
                        continue
                    for case in CASES if version == versions[-1] else IN_EVERY_VERSION:
                        if case == "no ACLs" and required is not rule.required:
                            continue
                        yield Cell(api, version, rule, required, case)


def is_possible(api: Api, version: int, rule: AccessRule) -> bool:
    """Whether the version can ask for what the row is about, and its answer can say it."""
    if api.name == "FindCoordinator":
        return version >= {"key_type=0": 0, "key_type=1": 1, "key_type=2": 6}[rule.when]
    if api.name == "JoinGroup":
        return version >= 4  # those before wait for other members
    if api.name == "DescribeLogDirs":
        return version >= 3  # those before have an empty answer
    if api.name == "Metadata" and rule.when == "would be created":
        return version >= 4
    return True


FAMILIES = sorted({api.family for api in APIS.values()})


def test_there_are_enough_cells() -> None:
    count = sum(1 for family in FAMILIES for _ in cells(family))
    assert count >= 700
    covered = {cell.api.name for family in FAMILIES for cell in cells(family)}
    assert covered == {api.name for api in APIS.values() if ACCESS[api.name] and api.served} - {
        "DescribeCluster",
        "CreateDelegationToken",
        "DescribeDelegationToken",
    }


def acl(required: RequiredAcl, name: str, case: str, *, deny: bool = False) -> Acl:
    pattern_type = PatternType.PREFIXED if case.endswith("a prefix") else PatternType.LITERAL
    if case.endswith("a prefix"):
        name = name[:3]
    elif case.endswith("everywhere"):
        name = "*"
    return Acl(
        AclPattern(required.resource, name, pattern_type),
        {"allowed to another": "User:bob", "allowed to all": "User:*"}.get(case, "User:*" if deny else ME),
        {"allowed from elsewhere": ELSEWHERE, "allowed from here": HERE}.get(case, "*"),
        required.operation,
        AclPermission.DENY if deny else AclPermission.ALLOW,
    )


def acls_of(cell: Cell) -> frozenset[Acl]:
    """Returns the ACLs of the case, and those that the other rows of the API need."""
    others = {
        acl(rule.required, name, "")
        for rule in ACCESS[cell.api.name]
        if rule is not cell.rule and cell.version in rule.versions and rule.refusal is not Refusal.SHOWN
        for name in names_of(rule.required.resource)
    }
    names = names_of(cell.required.resource)
    if cell.case in ("no ACLs", "super user"):
        return frozenset(others)
    allow, _, deny = cell.case.partition(" and denied")
    own = {acl(cell.required, name, allow) for name in names}
    if "denied" in cell.case:
        own |= {acl(cell.required, name, deny.strip(), deny=True) for name in names}
    return frozenset(others | own)


BY_ID_TOO = ("Metadata", "DeleteTopics")
"""Whose versions take names and ids."""


def names_of(resource: AclResourceType) -> tuple[str, ...]:
    return (*NAMES[resource], Names.new) if resource is AclResourceType.TOPIC else NAMES[resource]


def is_allowed_otherwise(cell: Cell, acls: frozenset[Acl]) -> bool:
    """Whether what other rows need allows this as well: READ brings DESCRIBE."""
    index = AclIndex(acls)
    return any(
        index.verdict(ME, HERE, required.operation, required.resource, names_of(required.resource)[0])
        is AclVerdict.ALLOWED
        for required in cell.rule.alternatives
    )


async def failures(wire: Wire, authorizer: AclAuthorizer, family: str) -> list[str]:
    wrong = []
    for number, cell in enumerate(cells(family)):
        Names.new = f"new-topic-{number}"
        acls = acls_of(cell)
        expected = CASES[cell.case]
        if not expected and is_allowed_otherwise(cell, acls):
            continue
        by_id = cell.rule.field.endswith("topics[].topic_id") and cell.api.name in BY_ID_TOO
        if expected and by_id and cell.api.name == "DeleteTopics":
            continue  # the others need the topic
        authorizer.configure({"super.users": ME if cell.case == "super user" else ""})
        authorizer.update((acls, *NO_ACLS[1:]))
        when = "by id" if by_id else cell.rule.when
        request = request_of(cell.api.name, cell.version, when)
        response = await wire.ask(request, cell.version)
        if is_served(cell, response) is not expected:
            codes = [code.name for code in codes_in(response)]
            wrong.append(f"{cell}: {'refused' if expected else 'served'} ({', '.join(codes) or 'no error'})")
    return wrong


def is_served(cell: Cell, response: Any) -> bool:
    if cell.rule.refusal is not Refusal.OMITTED:
        return cell.rule.code not in codes_in(response)
    values = [response]
    for part in cell.rule.field.split("."):
        below = [getattr(value, part.removesuffix("[]")) for value in values]
        values = list(itertools.chain.from_iterable(below)) if part.endswith("[]") else below
    return bool({TOPIC, GROUP, TRANSACTIONAL_ID} & set(values))


def codes_in(response: Any) -> list[ErrorCode]:
    codes = [error.code for error in refusals(response)]
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        codes += [ErrorCode.of(partition.partition_error_code) for partition in topic.results_by_partition]
    return codes


async def prepare(wire: Wire, authorizer: AclAuthorizer) -> None:
    """A topic, a group and a transactional id that are known."""
    authorizer.configure({"super.users": ME})
    await wire.create(TOPIC)
    topics = (await wire.ask(MetadataRequest(topics=None), 12)).topics
    Names.topic_id = next(topic.topic_id for topic in topics if topic.name == TOPIC)
    await wire.find_coordinator(GROUP)
    await wire.ask(request_of("OffsetCommit", 9), 9)
    await wire.ask(request_of("FindCoordinator", 4, "key_type=1"), 4)
    for _ in range(200):
        if (await wire.ask(request_of("InitProducerId", 4), 4)).error_code == 0:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the coordinator of transactions does not load")


@pytest.mark.parametrize("family", FAMILIES)
async def test_every_row_of_the_table_is_carried_out(scene: Scene, family: str) -> None:
    broker = await scene.start(**SETTINGS)
    authorizer = broker.context.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    wire = await scene.connect()
    await prepare(wire, authorizer)
    wrong = await failures(wire, authorizer, family)
    assert not wrong, "\n".join([f"{len(wrong)} cells of {sum(1 for _ in cells(family))}", *wrong])
