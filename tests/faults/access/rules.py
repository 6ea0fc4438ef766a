"""A cluster where everyone logs in: the brokers' settings, the users, the access rules of each; and changes of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.faults.access.clients import (
    BROKER,
    CHECKER,
    COPIER,
    KEEPER,
    MECHANISM,
    MEMBER,
    OBSERVER,
    OWNER,
    PROTOCOL,
    SOURCE_WRITER,
    WATCH,
    WRITER,
    Certificates,
    ClientSettings,
    password,
)
from tests.faults.workloads import COPIERS_GROUP, COPIES, READERS_GROUP, SOURCE

from odradek.security.authorizer import STANDARD_AUTHORIZER

LEDGER: Final = "ledger"
VISITS: Final = "visits"
"""Where guests may write."""
FORBIDDEN: Final = "forbidden"
"""Has no right at all, and sends Produce requests all the same."""
ONLOOKER: Final = "onlooker"
"""May describe the ledger, so that an unmodified producer sends what it may not write."""
RULES_AGE_S: Final = 10.0
"""Within this long, a rule that was taken away counts at no broker any more."""
_ASK_SECONDS: Final = 30.0
_INSIST_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.2
_ITERATIONS: Final = 4096
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_READ, _WRITE, _DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
_RULES: Final = (
    (OWNER, AclOperation.CREATE, _TOPIC, (LEDGER, SOURCE, COPIES, VISITS)),
    (OBSERVER, _DESCRIBE, _TOPIC, ("*",)),
    (KEEPER, AclOperation.ALTER, ResourceType.BROKER, ("kafka-cluster",)),
    (WRITER, _WRITE, _TOPIC, (LEDGER,)),
    (SOURCE_WRITER, _WRITE, _TOPIC, (SOURCE,)),
    (COPIER, _READ, _TOPIC, (SOURCE,)),
    (COPIER, _READ, _GROUP, (COPIERS_GROUP,)),
    (COPIER, _WRITE, _TOPIC, (COPIES,)),
    (COPIER, _WRITE, ResourceType.TRANSACTIONAL_ID, ("copier-",)),
    (MEMBER, _READ, _TOPIC, (SOURCE,)),
    (MEMBER, _READ, _GROUP, (READERS_GROUP,)),
    (WATCH, _DESCRIBE, _TOPIC, (SOURCE,)),
    (WATCH, _DESCRIBE, _GROUP, (COPIERS_GROUP, READERS_GROUP)),
    (CHECKER, _READ, _TOPIC, (LEDGER, SOURCE, COPIES, VISITS)),
    (CHECKER, _READ, _GROUP, (CHECKER,)),
    (ONLOOKER, _DESCRIBE, _TOPIC, (LEDGER,)),
)
"""Who may do what, and nothing else."""


def secured_settings(certificates: Certificates) -> dict[str, str]:
    """Of each broker. The process is given one listener, whose name is PLAINTEXT whatever it speaks."""
    users = (BROKER, FORBIDDEN, *dict.fromkeys(user for user, *_ in _RULES))
    return {
        "listener.security.protocol.map": f"PLAINTEXT:{PROTOCOL}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{BROKER}" password="{password(BROKER)}";',
        "odradek.scram.first.users": ";".join(
            f"{MECHANISM}=[name={user},password={password(user)}]" for user in users
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{BROKER}",
        "odradek.access.max.age.ms": str(int(RULES_AGE_S * 1000)),
    }


def make_rules(clients: ClientSettings) -> None:
    """The rules of every user, by the brokers' own one. KafkaException when they cannot be made."""
    admin = AdminClient({**clients.of(BROKER), "log_level": 0})
    rules = [
        _allowance(user, operation, resource, name)
        for user, operation, resource, names in _RULES
        for name in names
    ]
    for made in admin.create_acls(rules, request_timeout=_ASK_SECONDS).values():
        made.result(_ASK_SECONDS)


def _allowance(user: str, operation: AclOperation, resource: ResourceType, name: str) -> AclBinding:
    is_prefix = resource is ResourceType.TRANSACTIONAL_ID
    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    return AclBinding(resource, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


class RuleKeeper:
    """Gives and takes passwords and rules, as a user who may. Each of its methods blocks."""

    def __init__(self, clients: ClientSettings) -> None:
        self._clients = clients
        self.troubles: Counter[str] = Counter()

    def add_user(self, user: str) -> bool:
        """Whether it was acknowledged in time; so are the results of the other methods."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
        credential = UserScramCredentialUpsertion(user, info, password(user).encode())
        return self._insist(lambda admin: _alter(admin, credential))

    def remove_user(self, user: str) -> bool:
        deletion = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
        return self._insist(lambda admin: _alter(admin, deletion))

    def allow_to_write(self, user: str) -> bool:
        """Tried once. After False the rule may be there, or come later."""
        rule = _allowance(user, _WRITE, _TOPIC, VISITS)

        def create(admin: AdminClient) -> None:
            admin.create_acls([rule], request_timeout=_ASK_SECONDS)[rule].result(_ASK_SECONDS)

        return self._try(create)

    def remove_rules_of(self, user: str) -> bool:
        every_rule = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )

        def delete(admin: AdminClient) -> None:
            admin.delete_acls([every_rule], request_timeout=_ASK_SECONDS)[every_rule].result(_ASK_SECONDS)

        return self._insist(delete)

    def _insist(self, change: Callable[[AdminClient], None]) -> bool:
        deadline = time.monotonic() + _INSIST_SECONDS
        while time.monotonic() < deadline:
            if self._try(change):
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    def _try(self, change: Callable[[AdminClient], None]) -> bool:
        try:
            change(AdminClient({**self._clients.of(KEEPER), "log_level": 0}))
        except KafkaException as error:
            self.troubles[error.args[0].name()] += 1
            return False
        except TimeoutError:
            self.troubles["no answer in time"] += 1
            return False
        return True


def _alter(admin: AdminClient, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    """A user who is gone already is none that could not be removed."""
    answers = admin.alter_user_scram_credentials([change], request_timeout=_ASK_SECONDS)
    try:
        answers[change.user].result(_ASK_SECONDS)
    except KafkaException as error:
        if error.args[0].name() != "RESOURCE_NOT_FOUND":
            raise
