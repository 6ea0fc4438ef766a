"""Work that this broker does itself, or has another broker do: one port with a local and a remote adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from odradek.model.ids import BrokerId

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


class RemoteAdapter(Protocol[P_co]):
    """Has the work done by requests to other brokers."""

    def at(self, broker: BrokerId) -> P_co:
        """Returns the port as it is there."""

    def close(self) -> None:
        """Ends all waiting."""


class LocalOrRemote(Generic[P]):
    """Chooses the adapter that does a piece of work: the local one, or the remote one for another broker.

    `local` returns the adapter for this broker. `connect` makes the remote adapter when another broker is asked for the
    first time; so it may import it then."""

    def __init__(
        self, here: Callable[[], BrokerId], local: Callable[[], P], connect: Callable[[], RemoteAdapter[P]]
    ) -> None:
        self._here = here
        self._local = local
        self._connect = connect
        self._remote: RemoteAdapter[P] | None = None

    def at(self, broker: BrokerId) -> P:
        if broker == self._here():
            return self._local()
        if self._remote is None:
            self._remote = self._connect()
        return self._remote.at(broker)

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
