"""Options of `odradek console` for logins at an identity provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from odradek.config.files.secret_files import read_secret_file
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.console.oidc import provider as oidc_parts
    from odradek.console.oidc.provider import OidcOptions
else:
    oidc_parts = lazy("odradek.console.oidc.provider")

Command = TypeVar("Command", bound=Callable[..., object])


def oidc_options(command: Command) -> Command:
    """Adds the options."""
    for option in (
        click.option(
            "--public-url",
            metavar="URL",
            help="The console's address as browsers reach it; the provider sends them back to URL/login/callback.",
        ),
        click.option(
            "--oidc-ca", "ca_file", metavar="FILE", help="The authority of the provider's certificate (PEM)."
        ),
        click.option(
            "--oidc-id-token",
            "sends_id_token",
            is_flag=True,
            help="Send brokers the ID token, not the access token.",
        ),
        click.option(
            "--oidc-scope",
            "scope",
            default="openid",
            show_default=True,
            metavar="SCOPES",
            help="What to ask the provider for.",
        ),
        click.option(
            "--oidc-client-secret-file",
            "secret_file",
            metavar="FILE",
            help="A file with the console's secret at the provider; a public client has none.",
        ),
        click.option("--oidc-client-id", "client_id", metavar="ID", help="The console's id at the provider."),
        click.option(
            "--oidc-issuer",
            "issuer",
            metavar="URL",
            help="Let users log in at this identity provider (OpenID Connect).",
        ),
    ):
        command = option(command)
    return command


def oidc_provider(
    *,
    issuer: str | None,
    client_id: str | None,
    secret_file: str | None,
    scope: str,
    sends_id_token: bool,
    ca_file: str | None,
    public_url: str | None,
    listen: str,
    is_tls: bool,
) -> OidcOptions | None:
    """Returns how the console is registered at the provider; None without one. Raises ConfigError."""
    if issuer is None:
        if client_id or secret_file or ca_file or sends_id_token or public_url:
            raise ConfigError("options of a login at an identity provider need --oidc-issuer")
        return None
    if not client_id:
        raise ConfigError("--oidc-issuer needs --oidc-client-id: the console's id at the provider")
    host, _, port = listen.rpartition(":")
    if public_url is None and (host in ("", "0.0.0.0", "[::]", "::") or port == "0"):
        raise ConfigError(
            "--oidc-issuer needs --public-url: the address to which the provider sends browsers back"
        )
    secret = ""
    if secret_file is not None:
        content = read_secret_file("--oidc-client-secret-file", secret_file, others_may_read=False)
        secret = content.decode("utf-8", "replace").strip()
        if not secret:
            raise ConfigError(f"--oidc-client-secret-file {secret_file!r} is empty")
    try:
        make = oidc_parts.OidcOptions
    except ImportError as error:
        raise ConfigError(
            f"logins at a provider need more ({error}): pip install 'odradek[console,security]'"
        ) from error
    return make(
        issuer=issuer,
        client_id=client_id,
        client_secret=secret,
        public_url=public_url or f"{'https' if is_tls else 'http'}://{listen}",
        scope=" ".join(dict.fromkeys(["openid", *scope.split()])),
        sends_id_token=sends_id_token,
        ca_file=ca_file or "",
    )
