"""`odradek console`: the cluster in a browser."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from odradek.cli.access import NoBrokerError, check_reachable, client_arguments
from odradek.cli.console.listeners import listener_options, listener_terms
from odradek.cli.console.login import oidc_options, oidc_provider
from odradek.cli.options import bootstrap_option
from odradek.cli.output import remark, say
from odradek.config.sasl import OAUTHBEARER
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ConfigError
from odradek.model.java_numbers import is_digits
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.cli.console import demo as console_demo
    from odradek.console import serving
    from odradek.console.oidc.provider import OidcOptions
    from odradek.console.records import masking
    from odradek.console.sql import access
    from odradek.console.web import console as console_state
    from odradek.sql import rest_client
    from odradek.values import schema_registry as schemas
else:
    console_demo = lazy("odradek.cli.console.demo")
    serving = lazy("odradek.console.serving")
    masking = lazy("odradek.console.records.masking")
    console_state = lazy("odradek.console.web.console")
    access = lazy("odradek.console.sql.access")
    rest_client = lazy("odradek.sql.rest_client")
    schemas = lazy("odradek.values.schema_registry")

_LOGIN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OF_TOKENS: Final = ("sasl_oauthbearer_", "sasl_jaas_config", "java_security_auth_login_config")
_OWN_LOGIN: Final = ("sasl_username", "sasl_password", "sasl_jaas_config", "java_security_auth_login_config")


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8484",
    show_default=True,
    help="Where to listen. Beyond this machine, use --tls-certificate or a proxy with TLS.",
)
@click.option("--read-only", is_flag=True, help="Change nothing in the cluster, whatever users may do there.")
@click.option(
    "--shared-login",
    is_flag=True,
    help="Let everyone who reaches the console in, with the login of --command-config.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name by which browsers reach the console; may be repeated.",
)
@click.option(
    "--tls-certificate", "certificate", metavar="FILE", help="Speak HTTPS, with this certificate (PEM)."
)
@click.option(
    "--tls-key", "key", metavar="FILE", help="The certificate's private key, where it is in another file."
)
@click.option(
    "--schema-registry",
    metavar="URL",
    envvar="ODRADEK_SCHEMA_REGISTRY",
    help="Decode AVRO, PROTOBUF and JSON_SR in records: http://host:8081, or https://user:password@host.",
)
@click.option(
    "--masks",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Hide parts of records from everyone, by the rules in this TOML file.",
)
@click.option(
    "--programs",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Offer upgrades of pipelines to the programs in this directory; may be repeated. A dry run loads such a program here.",
)
@listener_options
@oidc_options
@click.option(
    "--demo",
    is_flag=True,
    help="Start three brokers with flights, and a SQL server where odradek[sql] is installed, and look at these. They end"
    " with the console.",
)
@click.option(
    "--sql",
    "sql_url",
    metavar="URL",
    envvar="ODRADEK_SQL",
    help="Show streams, tables and queries of this SQL server, and offer an editor.",
)
@click.option(
    "--sql-user",
    metavar="NAME",
    help="A login of the SQL server that everyone uses here; the password is asked for, or in ODRADEK_SQL_PASSWORD.",
)
@click.option(
    "--sql-ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The authority of an https SQL server, as PEM.",
)
@bootstrap_option
def console(
    listen: str,
    read_only: bool,
    shared_login: bool,
    hosts: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    demo: bool,
    sql_url: str | None,
    sql_user: str | None,
    sql_ca: Path | None,
    schema_registry: str | None,
    masks: Path | None,
    programs: tuple[str, ...],
    bootstrap: str,
    **oidc: Any,
) -> None:
    """Show a cluster in the browser: what is wrong, topics, settings, groups, records, pipelines, SQL.

    Where the cluster wants a login by name and password, or by a token of an identity provider, each user logs in and sees what
    their rights allow. The other settings of --command-config say how to connect.
    """
    host, port = _listen_address(listen)
    provider = None if demo else oidc_provider(listen=listen, is_tls=certificate is not None, **oidc)
    settings, asks = (
        ({}, False) if demo else _login_settings(shared=shared_login, at_provider=provider is not None)
    )
    serve, options = _console_parts()
    if asks and certificate is None and not _is_loopback(host):
        remark("passwords travel in plain text on this address: use --tls-certificate, or a proxy with TLS")
    if not demo:
        _warn_if_unreachable(bootstrap)
    sql = None if demo else _sql_terms(sql_url, sql_user, sql_ca, asks=asks)
    listeners = None if demo else listener_terms()
    with console_demo.demo_cluster() if demo else nullcontext() as started:
        if started is not None:
            bootstrap, sql = started.bootstrap, _sql_terms(started.sql, None, None, asks=False)
            listeners = listener_terms(started.metrics)
        asyncio.run(
            serve(
                options(
                    bootstrap=bootstrap,
                    settings=settings,
                    asks_for_login=asks,
                    read_only=read_only,
                    hosts=serving.own_hosts(host, (*hosts, *_public_host(provider))),
                    oidc=provider,
                    schema_registry=_registry_terms(schema_registry),
                    secure_cookies=certificate is not None or _is_https(provider),
                    sql=sql,
                    listeners=listeners,
                    certificate=certificate,
                    programs=programs,
                    masks=masking.RecordMasks() if masks is None else masking.read_masks(masks),
                ),
                serving.ConsoleAddress(host=host, port=port, certificate=certificate, key=key),
                on_ready=lambda url: _announce(url, is_demo=demo),
            )
        )


def _console_parts() -> tuple[Any, Any]:
    """Returns what serves the console, and its options. ConfigError where the extra is not installed."""
    try:
        return serving.serve_console, console_state.ConsoleOptions
    except ImportError as error:
        raise ConfigError(f"the console needs more ({error}): pip install 'odradek[console]'") from error


def _registry_terms(url: str | None) -> schemas.SchemaRegistryTerms | None:
    return None if url is None else schemas.SchemaRegistryTerms.of(url)


def _announce(url: str, *, is_demo: bool) -> None:
    """Prints the address for programs, and what to do with it for people."""
    say(f"ready {url}")
    what = "three brokers with flights, a group that lags, dead letters, users and SQL" if is_demo else ""
    remark(f"open {url} in a browser{': ' if what else ''}{what}; Ctrl-C ends it{' all' if is_demo else ''}")


def _sql_terms(url: str | None, user: str | None, ca: Path | None, *, asks: bool) -> access.SqlTerms | None:
    """Returns the SQL server and its login. `asks`: users of the console log in, so they do to the SQL server, too."""
    if url is None:
        if user is not None or ca is not None:
            raise ConfigError("--sql-user and --sql-ca are for a SQL server: name it with --sql URL")
        return None
    rest_client.check_url(url)
    password = ""
    if user is not None:
        password = os.environ.get("ODRADEK_SQL_PASSWORD", "") or click.prompt(
            "Password of the SQL server", hide_input=True, err=True
        )
    is_shared = user is not None or not asks
    return access.SqlTerms(url=url, user=user, password=password, ca=ca, is_shared=is_shared)


def _warn_if_unreachable(bootstrap: str) -> None:
    """Raises ConfigError for an invalid address, and warns when the cluster is away: the console shows it when it comes
    back."""
    try:
        check_reachable(bootstrap)
    except NoBrokerError as error:
        remark(str(error))


def _public_host(provider: OidcOptions | None) -> tuple[str, ...]:
    """Returns the name to which the provider sends browsers back, as a Host header has it."""
    if provider is None:
        return ()
    host = urlsplit(provider.public_url).hostname or ""
    return (f"[{host}]" if ":" in host else host,)


def _is_https(provider: OidcOptions | None) -> bool:
    return provider is not None and provider.public_url.startswith("https:")


def _login_settings(*, shared: bool, at_provider: bool = False) -> tuple[ClientSettings, bool]:
    """Returns how to connect, and whether each user logs in. Then the settings have no login of their own."""
    settings = client_arguments("odradek-console")
    is_sasl = str(settings.get("security_protocol", "")).startswith("SASL")
    mechanism = settings.get("sasl_mechanism", "")
    if at_provider:
        if shared or not is_sasl or mechanism != OAUTHBEARER:
            raise ConfigError(
                "--oidc-issuer: tokens of users go to brokers by OAUTHBEARER; set security.protocol=SASL_SSL and "
                "sasl.mechanism=OAUTHBEARER in --command-config, without --shared-login"
            )
        return {name: value for name, value in settings.items() if not name.startswith(_OF_TOKENS)}, True
    if shared or not is_sasl:
        return settings, False
    if mechanism == OAUTHBEARER:
        raise ConfigError(
            "users log in by OAUTHBEARER at an identity provider: set --oidc-issuer and --oidc-client-id, or use --shared-login"
        )
    if mechanism not in _LOGIN_MECHANISMS:
        raise ConfigError(
            f"users cannot log in to the console by {mechanism or 'no sasl.mechanism'}: "
            f"set one of {', '.join(_LOGIN_MECHANISMS)}, or use --shared-login"
        )
    return {name: value for name, value in settings.items() if name not in _OWN_LOGIN}, True


def _listen_address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not is_digits(port) or int(port[:6]) > 65_535:
        raise ConfigError(f"--listen {listen!r}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
