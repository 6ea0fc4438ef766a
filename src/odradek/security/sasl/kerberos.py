"""GSSAPI (RFC 4752): Kerberos version 5, both sides. Needs the package `gssapi` and MIT's libraries: import it lazily.

    client:  the context's first token           (AP-REQ)
    server:  the context's answer                (AP-REP: the server has its key, too)
    client:  nothing
    server:  wrapped: one byte of security layers that it has, three bytes of a size
    client:  wrapped: the layer it takes, three bytes of a size, whom it wants to act as

Kafka has one layer, "none": what follows is as it is, and TLS protects it. At a login the server asks no KDC:
it reads its keytab and the library's replay cache (0.6 ms). The client's first step asks the KDC: it blocks,
so it belongs on a thread. The user is always the principal that proved itself. A client that names another
one is refused, except the broker's own service, which kafka-python and aiokafka write there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import gssapi

from odradek.config.files.secret_files import check_private
from odradek.config.kerberos import KerberosIdentity
from odradek.model.errors import ConfigError
from odradek.security.sasl.exchange import ExchangeStep, LoginRefused, LoginSuccess
from odradek.security.sasl.kerberos_names import LocalNames

_KERBEROS: Final = gssapi.MechType.kerberos
_NO_LAYER: Final = 1
_LAYER_BYTES: Final = 4
_OFFER: Final = bytes((_NO_LAYER, 0, 0, 0))
_NO_ONE_IN_PARTICULAR: Final = "x"


class _Context(gssapi.SecurityContext):  # type: ignore[misc]
    """A context that raises an error of a step in that step; by default the library raises it in the next
    one."""

    __DEFER_STEP_ERRORS__ = False


class KerberosAcceptor:
    """The key of one listener. ConfigError when there is none, or when a rule for names cannot be read."""

    def __init__(self, identity: KerberosIdentity, rules: Iterable[str], *, others_may_read: bool) -> None:
        self._credentials = _acceptor_credentials(identity, others_may_read=others_may_read)
        self._names = LocalNames(rules, _default_realm())
        self._service = identity.service or identity.principal.partition("/")[0]

    def exchange(self) -> KerberosServer:
        return KerberosServer(self._credentials, self._names, self._service)


class KerberosServer:
    """The broker's side of a GSSAPI login. `credentials` are the library's, to accept with; `service` is the first part of
    this broker's principal."""

    def __init__(self, credentials: object, names: LocalNames, service: str) -> None:
        self._context = _Context(creds=credentials, usage="accept")
        self._names = names
        self._service = service
        self._waits_for_layer = False

    def step(self, response: bytes) -> ExchangeStep:
        try:
            if self._waits_for_layer:
                return ExchangeStep(end=self._chosen(response))
            if self._context.complete:
                if response:
                    raise LoginRefused("the context is complete, and the client sends another token")
                return self._offer()
            if not response:
                raise LoginRefused("the first message is empty")
            token = self._context.step(response)
            if self._context.complete and not token:
                return self._offer()
            return ExchangeStep(challenge=token or b"")
        except gssapi.exceptions.GSSError as error:
            raise LoginRefused(f"Kerberos: {_words(error)}") from None

    def _offer(self) -> ExchangeStep:
        self._waits_for_layer = True
        return ExchangeStep(challenge=self._context.wrap(_OFFER, False).message)

    def _chosen(self, response: bytes) -> LoginSuccess:
        choice = self._context.unwrap(response).message
        if len(choice) < _LAYER_BYTES or choice[0] != _NO_LAYER:
            raise LoginRefused("the client wants a security layer, which Kafka does not have")
        principal = str(self._context.initiator_name)
        user = self._names.of(principal)
        acts_as = choice[_LAYER_BYTES:].decode("utf-8", "replace")
        is_service = self._service != "" and acts_as.partition("@")[0] == self._service
        if not is_service and acts_as not in ("", principal, principal.rpartition("@")[0], user):
            raise LoginRefused(f"{principal!r} wants to act as {acts_as!r}")
        return LoginSuccess(user=user)


class KerberosClient:
    """The client's side of a GSSAPI login at the broker on `host`, whose principal is SERVICE/HOST."""

    def __init__(self, identity: KerberosIdentity, host: str) -> None:
        self._identity = identity
        self._service = f"{identity.service}@{host}"
        self._context: Any = None
        self.is_done = False

    def step(self, challenge: bytes) -> bytes | None:
        """The first step reads files and asks the KDC."""
        if self.is_done:
            return None
        try:
            if self._context is None:
                self._context = self._begun()
            if self._context.complete:
                return self._choice(challenge)
            return self._context.step(challenge or None) or b""
        except gssapi.exceptions.GSSError as error:
            raise LoginRefused(f"Kerberos, for {self._service}: {_words(error)}") from None

    def _begun(self) -> object:
        return _Context(
            name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
            creds=_initiator_credentials(self._identity),
            usage="initiate",
            mech=_KERBEROS,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        )

    def _choice(self, challenge: bytes) -> bytes:
        offer = self._context.unwrap(challenge).message
        if len(offer) != _LAYER_BYTES or not offer[0] & _NO_LAYER:
            raise LoginRefused("the broker insists on a security layer, which Kafka does not have")
        self.is_done = True
        wrapped: bytes = self._context.wrap(
            _OFFER + str(self._context.initiator_name).encode(), False
        ).message
        return wrapped


def _acceptor_credentials(identity: KerberosIdentity, *, others_may_read: bool) -> object:
    what = f"the keytab {identity.keytab!r}" if identity.keytab else "the system's keytab"
    if identity.keytab and not others_may_read and os.path.exists(identity.keytab):
        check_private(f"keyTab={identity.keytab!r}", identity.keytab)
    try:
        return gssapi.Credentials(
            name=_principal(identity),
            usage="accept",
            mechs=[_KERBEROS],
            store={"keytab": identity.keytab} if identity.keytab else None,
        )
    except gssapi.exceptions.GSSError as error:
        raise ConfigError(
            f"GSSAPI cannot use {what} for {identity.principal or 'any principal'}: {_words(error)}"
        ) from None


def _initiator_credentials(identity: KerberosIdentity) -> object:
    return gssapi.Credentials(
        name=_principal(identity), usage="initiate", mechs=[_KERBEROS], store=_initiator_store(identity)
    )


def _initiator_store(identity: KerberosIdentity) -> Mapping[str, str] | None:
    """Returns the store of the client's tickets. With a keytab they are in the process's memory, where logins share them, and
    the library renews them."""
    if identity.uses_keytab:
        store = {"ccache": f"MEMORY:odradek {identity.principal} {identity.keytab}"}
        return store | ({"client_keytab": identity.keytab} if identity.keytab else {})
    return {"ccache": f"FILE:{identity.ticket_cache}"} if identity.ticket_cache else None


def _principal(identity: KerberosIdentity) -> object:
    return gssapi.Name(identity.principal, gssapi.NameType.kerberos_principal) if identity.principal else None


def _default_realm() -> str:
    """Returns the default realm of krb5.conf. The library has no call for it, but completes a name without a realm."""
    try:
        name = gssapi.Name(_NO_ONE_IN_PARTICULAR, gssapi.NameType.kerberos_principal).canonicalize(_KERBEROS)
    except gssapi.exceptions.GSSError as error:
        raise ConfigError(f"GSSAPI needs default_realm in krb5.conf: {_words(error)}") from None
    return str(name).rpartition("@")[2]


def _words(error: Any) -> str:
    """Returns the library's own, of the mechanism where there are any."""
    words = [*error.get_all_statuses(error.min_code, False)] if error.min_code else []
    return "; ".join(words or error.get_all_statuses(error.maj_code, True))
