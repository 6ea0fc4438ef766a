"""The Kerberos identity of a broker or a client: `Krb5LoginModule` of JAAS, and `sasl.kerberos.service.name`.

com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.config.jaas import LoginModule
from odradek.model.errors import ConfigError

SERVICE_NAME: Final = "sasl.kerberos.service.name"
_ANY: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosIdentity:
    """The files are read by Kerberos' library, not here."""

    service: str = ""
    """The first part of brokers' principals: kafka of kafka/host@REALM."""
    principal: str = ""
    """Empty: any of the keytab, or the one of the ticket cache."""
    keytab: str = ""
    """Empty: the system's, or none if there is a ticket cache."""
    ticket_cache: str = ""
    """Empty: the system's."""
    uses_keytab: bool = False


def kerberos_identity(jaas: LoginModule | None, service_name: str, *, key: str) -> KerberosIdentity:
    """Raises ConfigError, naming `key`, for two service names. Without a login module: what `kinit` left."""
    if jaas is None:
        return KerberosIdentity(service=service_name)
    options = jaas.options
    own_service = options.get("serviceName", "")
    if own_service and service_name and own_service != service_name:
        raise ConfigError(
            f"{key} says serviceName={own_service}, and {SERVICE_NAME} is {service_name}: set one of them"
        )
    principal = options.get("principal", "")
    return KerberosIdentity(
        service=service_name or own_service,
        principal="" if principal == _ANY else principal,
        keytab=options.get("keyTab", "").removeprefix("file:"),
        ticket_cache=options.get("ticketCache", "").removeprefix("file:"),
        uses_keytab=jaas.flag("useKeyTab") or "keyTab" in options,
    )
