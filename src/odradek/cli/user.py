"""`odradek user`: who may log in by SCRAM; add, list, remove."""

from __future__ import annotations

import secrets
import sys
from typing import Final

import click

from odradek.cli.access import open_admin
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import print_json, print_table, remark, say
from odradek.client.admin.users import DEFAULT_ITERATIONS, NewPassword, user_name_problem

_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
_PASSWORD_BYTES: Final = 18

mechanism_option = click.option(
    "--mechanism",
    type=click.Choice(_MECHANISMS),
    default=_MECHANISMS[0],
    show_default=True,
    help="The SASL mechanism.",
)


@click.group()
def user() -> None:
    """Add, list and remove users that log in by SCRAM."""


@user.command()
@click.argument("name")
@mechanism_option
@click.option("--generate", is_flag=True, help="Make a password, and print it once.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option(
    "--iterations",
    type=Whole(4096, 16384),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="The iterations of the hash: more make a guess more expensive.",
)
@bootstrap_option
def add(
    name: str, mechanism: str, generate: bool, password_stdin: bool, iterations: int, bootstrap: str
) -> None:
    """Add a user, or give one a new password. It is asked for on the terminal, and never part of the command."""
    _check_name(name)
    if generate:
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
    elif password_stdin:
        password = _line_of_standard_input()
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    if not password:
        raise click.UsageError("the password is empty", click.get_current_context())
    with open_admin(bootstrap) as admin:
        admin.alter_users({name: NewPassword(password=password, mechanism=mechanism, iterations=iterations)})
    remark(f"{name} may log in by {mechanism}")
    if generate:
        say(password)


def _line_of_standard_input() -> str:
    try:
        return sys.stdin.readline().rstrip("\n")
    except UnicodeDecodeError:
        raise click.UsageError("the password is not UTF-8 text", click.get_current_context()) from None


def _check_name(name: str) -> None:
    problem = user_name_problem(name)
    if problem is not None:
        raise click.UsageError(
            f"the name {name!r} {problem}: no client could log in with it", click.get_current_context()
        )


@user.command("list")
@bootstrap_option
@json_option
def list_(bootstrap: str, as_json: bool) -> None:
    """List users and their mechanisms."""
    with open_admin(bootstrap) as admin:
        users = admin.describe_users()
    if as_json:
        print_json(users)
        return
    print_table(
        ["user", "mechanism", "iterations"],
        [
            (name, mechanism, iterations)
            for name, mechanisms in sorted(users.items())
            for mechanism, iterations in sorted(mechanisms.items())
        ],
    )


@user.command()
@click.argument("name")
@mechanism_option
@bootstrap_option
def remove(name: str, mechanism: str, bootstrap: str) -> None:
    """Remove a user's credentials. Connections that are open go on until their session ends."""
    with open_admin(bootstrap) as admin:
        admin.alter_users({name: mechanism})
    remark(f"{name} may not log in by {mechanism} any more")
