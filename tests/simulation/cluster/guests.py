"""Access that comes and goes in a simulated cluster: rules are given and taken away, and a guest tries what it may.

A super user writes the rules. Each guest asks every broker, again and again, for the metadata of one topic: a broker that
shows it lets the guest in. Once a rule is gone for `RULES_AGE_S`, no broker does, also none that is cut off. In the end a
visitor gets a password, and loses it: every broker knows of both when the change is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

from tests.simulation.broker.clients import RefusedError
from tests.simulation.cluster.admin import expect, insist
from tests.simulation.cluster.clients import Address, ClusterContext, ClusterRouter
from tests.simulation.cluster.keeper import gather_all
from tests.simulation.cluster.logins import (
    ADMIN,
    GUESTS,
    MECHANISM,
    RULES_AGE_S,
    VISITOR,
    WORKER,
    LoginSource,
    password,
)
from tests.simulation.cluster.plain import PLAIN
from tests.simulation.cluster.work import Setting

from odradek.model.errors import ErrorCode
from odradek.net.outgoing_security import LoginFailed
from odradek.protocol.acls import CLUSTER_NAME, AclOperation, AclPermission, AclResourceType, PatternType
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from odradek.protocol.messages.security.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.security.sasl.credentials import MECHANISM_NUMBERS
from odradek.security.sasl.scram import salted
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

_CALM_LOOK_S: Final = 0.1
_SALT: Final = b"salt of visitors"
_ITERATIONS: Final = 4096
_MECHANISM_NUMBER: Final = next(number for number, name in MECHANISM_NUMBERS.items() if name == MECHANISM)
_WORKERS_RESOURCES: Final = (
    (AclResourceType.TOPIC, "*"),
    (AclResourceType.GROUP, "*"),
    (AclResourceType.TRANSACTIONAL_ID, "*"),
    (AclResourceType.CLUSTER, CLUSTER_NAME),
)


def allowance(resource_type: AclResourceType, name: str, user: str, operation: AclOperation) -> AclCreation:
    return AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=AclPermission.ALLOW,
    )


class RuleKeeper:
    """Gives and takes rules and passwords, as a super user; each once. OSError or RefusedError: perhaps it did, or will."""

    def __init__(self, context: ClusterContext) -> None:
        self.context: Final = context

    async def allow(self, rules: Sequence[AclCreation], client: ClusterRouter) -> None:
        response = await client.call(CreateAclsRequest(creations=list(rules)), 3, CreateAclsResponse)
        for acl_result in response.results:
            expect(acl_result.error_code, "an ACL")

    async def remove_all_of(self, user: str, client: ClusterRouter) -> None:
        everything = DeleteAclsFilter(
            resource_type_filter=AclResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=f"User:{user}",
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermission.ANY,
        )
        response = await client.call(DeleteAclsRequest(filters=[everything]), 3, DeleteAclsResponse)
        expect(response.filter_results[0].error_code, "ACLs that go")

    async def add_user(self, user: str, client: ClusterRouter) -> None:
        credential = ScramCredentialUpsertion(
            name=user,
            mechanism=_MECHANISM_NUMBER,
            iterations=_ITERATIONS,
            salt=_SALT,
            salted_password=salted(MECHANISM, password(user), _SALT, _ITERATIONS),
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[credential])
        response = await client.call(request, 0, AlterUserScramCredentialsResponse)
        expect(response.results[0].error_code, "a new user")

    async def remove_user(self, user: str, client: ClusterRouter) -> None:
        gone = ScramCredentialDeletion(name=user, mechanism=_MECHANISM_NUMBER)
        request = AlterUserScramCredentialsRequest(deletions=[gone], upsertions=[])
        response = await client.call(request, 0, AlterUserScramCredentialsResponse)
        expect(response.results[0].error_code, "a user that goes", ErrorCode.RESOURCE_NOT_FOUND)


class Guest:
    """Asks one broker after another."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._links: dict[Address, WireClient] = {}

    async def is_let_in(self, broker: Address) -> bool:
        """OSError or RefusedError when there is no answer. The connection is kept: access ends on an open one, too."""
        link = self._links.get(broker)
        try:
            if link is None:
                link = self._links[broker] = await self._context.dial(broker)
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=PLAIN)], allow_auto_topic_creation=False
            )
            response = await link.call(request, 12, MetadataResponse)
        except (OSError, LoginFailed):
            gone = self._links.pop(broker, None)
            if gone is not None:
                gone.close()
            raise
        code = expect(
            response.topics[0].error_code, "metadata", ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )  # fmt: skip
        return code is ErrorCode.NONE

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()


class GuestWork:
    """Guests whose access comes and goes while faults fall."""

    def __init__(self, setting: Setting, logins: LoginSource) -> None:
        self._setting = setting
        self._rules = RuleKeeper(replace(setting.context, login=logins.of(ADMIN)))
        self._contexts = {user: replace(setting.context, login=logins.of(user)) for user in GUESTS}
        self._visitor_context = replace(setting.context, login=logins.of(VISITOR))
        self._removed_s: dict[str, float] = {}
        """Since when a guest certainly has no rules."""
        self._having = dict.fromkeys(GUESTS)

    async def prepare(self) -> None:
        """The other workloads' rules: their user is no super user."""
        rules = [
            allowance(resource_type, name, WORKER, AclOperation.ALL)
            for resource_type, name in _WORKERS_RESOURCES
        ]
        await self._setting.somewhere(insist(self._rules.context, partial(self._rules.allow, rules)))

    async def run(self) -> None:
        looking = [
            asyncio.get_running_loop().create_task(self._setting.somewhere(self._look(user)))
            for user in self._having
        ]
        try:
            await gather_all(*(self._setting.somewhere(self._change(user)) for user in list(self._having)))
            while not self._setting.is_calm():
                await asyncio.sleep(_CALM_LOOK_S)
        finally:
            for task in looking:
                task.cancel()
            outcomes = await asyncio.gather(*looking, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def _change(self, user: str) -> None:
        """One rule is given and taken away. Where the answer to the first is lost, the request may still come through later,
        and the guest proves nothing."""
        rng = self._setting.stream(f"access of {user}")
        await asyncio.sleep(rng.uniform(0, 1))
        client, is_certain = await self._rules.context.connect(), True
        try:
            rule = allowance(AclResourceType.TOPIC, PLAIN, user, AclOperation.DESCRIBE)
            await self._rules.allow([rule], client)
        except (OSError, RefusedError):
            is_certain = False
        finally:
            client.close()
        await asyncio.sleep(rng.uniform(0.5, 4))
        await insist(self._rules.context, partial(self._rules.remove_all_of, user))
        if is_certain:
            self._removed_s[user] = self._now()
        self._having.pop(user)

    async def _look(self, user: str) -> None:
        rng, guest = self._setting.stream(f"looks of {user}"), Guest(self._contexts[user])
        try:
            while True:
                for broker in self._setting.context.brokers:
                    await self._look_at(user, guest, broker)
                await asyncio.sleep(rng.uniform(0.1, 0.5))
        finally:
            guest.close()

    async def _look_at(self, user: str, guest: Guest, broker: Address) -> None:
        asked_s, removed_s = self._now(), self._removed_s.get(user)
        try:
            is_let_in = await guest.is_let_in(broker)
        except (OSError, RefusedError):
            return
        if is_let_in and removed_s is not None and asked_s > removed_s + RULES_AGE_S:
            raise ViolationError(
                f"{broker[0]} lets {user} in {asked_s - removed_s:.1f} s after its access was taken away"
            )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def undone(self) -> list[str]:
        return [f"the access of {user}" for user in self._having]

    async def check(self) -> None:
        """All is calm: no broker lets a guest in that has no rules, and each knows of a user what was answered last."""
        for user in self._removed_s:
            await self._setting.somewhere(self._check_out(user))
        await self._setting.somewhere(self._check_users())

    async def _check_out(self, user: str) -> None:
        with closing(Guest(self._contexts[user])) as guest:
            for broker in self._setting.context.brokers:
                if await self._answer(guest, broker):
                    raise ViolationError(f"{broker[0]} lets {user} in when all is calm")

    async def _answer(self, guest: Guest, broker: Address) -> bool:
        while True:
            try:
                return await guest.is_let_in(broker)
            except (OSError, RefusedError):
                await self._setting.context.pause()

    async def _check_users(self) -> None:
        await insist(self._rules.context, partial(self._rules.add_user, VISITOR))
        await self._check_visitor(is_known=True)
        await insist(self._rules.context, partial(self._rules.remove_user, VISITOR))
        await self._check_visitor(is_known=False)

    async def _check_visitor(self, *, is_known: bool) -> None:
        for broker in self._setting.context.brokers:
            if await self._logs_in(broker) is not is_known:
                raise ViolationError(
                    f"{broker[0]} does not know yet that a user {'came' if is_known else 'went'}"
                )

    async def _logs_in(self, broker: Address) -> bool:
        while True:
            try:
                link = await self._visitor_context.dial(broker)
            except LoginFailed:
                return False
            except OSError:
                await self._setting.context.pause()
            else:
                link.close()
                return True
