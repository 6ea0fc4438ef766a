"""The mechanisms of one listener: what each login needs of this broker and of the cluster's image."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.cluster.image import ClusterImage
from odradek.config.listener_security import ListenerSecurity
from odradek.config.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
from odradek.runtime.ports import Entropy
from odradek.security.sasl.exchange import ServerExchange
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramLookup, ScramServer, TokenCredential
from odradek.security.sasl.users import NO_SCRAM_USERS, CredentialShapes, ScramUsers

_SECRET_PARTS: Final = 2


class Mechanisms:
    """The SASL mechanisms of one listener. Used on the event loop. `token`: a delegation token by mechanism and id."""

    def __init__(
        self,
        security: ListenerSecurity,
        entropy: Entropy,
        image: Callable[[], ClusterImage],
        *,
        bearer: Callable[[], ServerExchange] | None,
        kerberos: Callable[[], ServerExchange] | None,
        token: Callable[[str, str], TokenCredential | None],
    ) -> None:
        self._security = security
        self._entropy = entropy
        self._image = image
        self._bearer = bearer
        self._kerberos = kerberos
        self._token = token
        self._own_seed = self._random_text()
        """A random seed, used until the cluster has one."""
        self._counted_users = NO_SCRAM_USERS
        self._shapes: dict[str, CredentialShapes] = {}
        """Credential shapes of `_counted_users`, by mechanism; cached, since users and logins may be many."""

    def exchanges(self) -> dict[str, Callable[[], ServerExchange]]:
        """Returns the functions that begin a login by each enabled mechanism."""
        servers: dict[str, Callable[[], ServerExchange]] = {}
        for mechanism, settings in self._security.mechanisms.items():
            if mechanism == PLAIN:
                users = {} if settings.jaas is None else settings.jaas.users
                servers[mechanism] = partial(PlainServer, users)
            elif mechanism in SCRAM_MECHANISMS:
                servers[mechanism] = partial(self._scram, mechanism)
            elif mechanism == OAUTHBEARER and self._bearer is not None:
                servers[mechanism] = self._bearer
            elif mechanism == GSSAPI and self._kerberos is not None:
                servers[mechanism] = self._kerberos
        return servers

    @property
    def lifetimes_ms(self) -> dict[str, int]:
        return {name: settings.max_reauth_ms for name, settings in self._security.mechanisms.items()}

    def _scram(self, mechanism: str) -> ServerExchange:
        users = self._image().scram_users
        lookup = ScramLookup(
            credential=lambda user: users.credential(user, mechanism),
            token=partial(self._token, mechanism),
            secret=(users.seed or self._own_seed).encode(),
            shapes=self._shapes_of(users, mechanism),
        )
        return ScramServer(mechanism, lookup, self._random_text())

    def _shapes_of(self, users: ScramUsers, mechanism: str) -> CredentialShapes:
        if users is not self._counted_users:
            self._counted_users, self._shapes = users, {}
        if mechanism not in self._shapes:
            self._shapes[mechanism] = users.shapes(mechanism)
        return self._shapes[mechanism]

    def _random_text(self) -> str:
        return "".join(self._entropy.uuid().hex for _ in range(_SECRET_PARTS))
