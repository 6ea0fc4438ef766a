"""Shared parts of the commands on pipelines: the store, the user, and the message after a change."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from odradek.cli.access import (
    PATIENCE_MS,
    check_reachable,
    client_arguments,
    command_config,
)
from odradek.cli.output import print_json, remark
from odradek.cli.pipeline import listing
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.pipelines import membership
    from odradek.pipelines import store as pipeline_store
    from odradek.pipelines.document import PipelineDocument
    from odradek.pipelines.store import PipelineStore
else:
    membership = lazy("odradek.pipelines.membership")
    pipeline_store = lazy("odradek.pipelines.store")

NO_SUPERVISOR: Final = "no one supervises the pipelines of this cluster: start `odradek pipelines serve`"


@contextmanager
def open_store(bootstrap: str) -> Iterator[PipelineStore]:
    """Opens the store. Raises ConfigError, or KafkaError where there is no broker."""
    check_reachable(bootstrap)
    with pipeline_store.PipelineStore(bootstrap, patience_ms=PATIENCE_MS, **client_arguments()) as store:
        yield store


def program_environment(bootstrap: str) -> dict[str, str]:
    """Returns the environment variables by which a program of the user finds its brokers."""
    path = command_config()
    return {
        "ODRADEK_BOOTSTRAP": bootstrap,
        **({} if path is None else {"ODRADEK_CLIENT_CONFIG": os.path.abspath(path)}),
    }


def say_what_follows(store: PipelineStore, document: PipelineDocument, as_json: bool, text: str) -> None:
    """Prints the changed document, and what carries it out."""
    owner = membership.supervisor_of(store.admin)
    if as_json:
        state: dict[str, object] = {**listing.as_json(document, {}), "supervised_by": owner}
        print_json(state)
    remark(f"{text}; {owner} sees to it" if owner is not None else f"{text}; {NO_SUPERVISOR}")


def who() -> str:
    """Returns the person, for histories."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
