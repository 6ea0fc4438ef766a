"""`odradek token`: delegation tokens; create, renew, expire, list."""

from __future__ import annotations

import base64

import click

from odradek.cli.access import open_admin
from odradek.cli.moments import duration_ms, time_text
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import print_json, print_table, remark, say
from odradek.client import Admin
from odradek.client.admin.delegation_tokens import IssuedToken
from odradek.model.errors import ErrorCode, KafkaError


@click.group()
def token() -> None:
    """Let others act for a user for a while, without its password (KIP-48).

    A client with a token's id and HMAC logs in by SCRAM as the token's owner, until the token expires. Tokens are made by
    clients that logged in themselves, where brokers have delegation.token.secret.key.
    """


@token.command()
@click.option(
    "--owner", metavar="User:NAME", help="The user that the token is for; by default the one that runs this."
)
@click.option(
    "--renewer",
    "renewers",
    metavar="User:NAME",
    multiple=True,
    help="A user who may renew and expire it, too.",
)
@click.option("--max-lifetime", metavar="7d", help="The longest life: it cannot be renewed beyond this.")
@click.option(
    "--jaas", is_flag=True, help="Print only the sasl.jaas.config of a client that logs in with it."
)
@bootstrap_option
@json_option
def create(
    owner: str | None,
    renewers: tuple[str, ...],
    max_lifetime: str | None,
    jaas: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Make a token, and print it: it is a secret."""
    lifetime_ms = -1 if max_lifetime is None else duration_ms(max_lifetime)
    with open_admin(bootstrap) as admin:
        made = admin.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms)
    if jaas:
        say(made.jaas_config)
    elif as_json:
        print_json(_as_json(made) | {"hmac": _text(made.hmac), "sasl.jaas.config": made.jaas_config})
    else:
        print_table(
            ["id", "hmac", "owner", "expires"],
            [(made.token_id, _text(made.hmac), made.owner, time_text(made.expires_ms))],
        )


@token.command()
@click.argument("token_id", metavar="ID")
@click.option(
    "--period", metavar="1d", help="The time until it expires; by default delegation.token.expiry.time.ms."
)
@bootstrap_option
def renew(token_id: str, period: str | None, bootstrap: str) -> None:
    """Extend the life of a token."""
    period_ms = -1 if period is None else duration_ms(period)
    with open_admin(bootstrap) as admin:
        expires_ms = admin.renew_delegation_token(_hmac_of(admin, token_id), period_ms=period_ms)
    remark(f"{token_id} expires {time_text(expires_ms)}")


@token.command()
@click.argument("token_id", metavar="ID")
@click.option("--after", metavar="1h", help="The time until it ends; by default it ends now.")
@bootstrap_option
def expire(token_id: str, after: str | None, bootstrap: str) -> None:
    """End a token."""
    period_ms = -1 if after is None else duration_ms(after)
    with open_admin(bootstrap) as admin:
        admin.expire_delegation_token(_hmac_of(admin, token_id), period_ms=period_ms)
    remark(f"{token_id} is over" if after is None else f"{token_id} is over in {after}")


@token.command("list")
@click.option("--owner", "owners", metavar="User:NAME", multiple=True, help="Only tokens of these owners.")
@bootstrap_option
@json_option
def list_(owners: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List the tokens that you may see, without their secrets."""
    with open_admin(bootstrap) as admin:
        tokens = admin.describe_delegation_tokens(owners or None)
    if as_json:
        print_json([_as_json(known) for known in tokens])
        return
    print_table(
        ["id", "owner", "requester", "renewers", "issued", "expires", "at most until"],
        [
            (
                known.token_id,
                known.owner,
                known.requester,
                ", ".join(known.renewers),
                time_text(known.issued_ms),
                time_text(known.expires_ms),
                time_text(known.max_ms),
            )
            for known in tokens
        ],
    )


def _hmac_of(admin: Admin, token_id: str) -> bytes:
    """Commands name a token by its id: the HMAC is a secret, which others would see among the processes."""
    for known in admin.describe_delegation_tokens():
        if known.token_id == token_id:
            return known.hmac
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no token {token_id} that you may see")


def _text(hmac: bytes) -> str:
    return base64.b64encode(hmac).decode()


def _as_json(known: IssuedToken) -> dict[str, object]:
    return {
        "id": known.token_id,
        "owner": known.owner,
        "requester": known.requester,
        "renewers": list(known.renewers),
        "issued_ms": known.issued_ms,
        "expires_ms": known.expires_ms,
        "max_ms": known.max_ms,
    }
