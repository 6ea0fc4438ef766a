"""The server's connections: how many there are, and which one gives way to a new one.

A connection is *busy* while a complete request of it is answered. Any other one is *waiting*: it has sent a part of a
request, or nothing. When there are as many connections as the server or one address may have, the oldest waiting one ends. So
a stranger with a thousand half requests keeps no client out, and descriptors are left for brokers and files.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections import Counter
from contextlib import suppress
from typing import Final

from odradek.telemetry import events

_log = events.caused_by_peers("sql")
Peer = tuple[object, ...]
"""Address and port."""
_CONNECTIONS_MAX: Final = 1024
_PER_ADDRESS_MAX: Final = 256
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


def connections_allowed() -> int:
    """Returns half of the descriptors that this process may have, and at most 1,024."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else max(8, min(_CONNECTIONS_MAX, soft // 2))


class SqlConnections:
    """The connections of the server, and which one is closed when there are too many.

    `per_address_max`: waiting connections of one address that stay when a new one comes from there.
    """

    def __init__(self, connections_max: int | None = None, per_address_max: int = _PER_ADDRESS_MAX) -> None:
        self._max = connections_allowed() if connections_max is None else connections_max
        self._per_address_max = per_address_max
        self._open: dict[Peer, _Accepted] = {}
        self._waiting: dict[Peer, None] = {}
        """Connections without a request, in the order in which they began to wait."""
        self._per_address: Counter[str] = Counter()
        """The number of waiting connections of each address."""
        self._busy: Counter[Peer] = Counter()
        """The requests in progress of each connection: HTTP/2 has several of them in one."""

    def admit(self, accepted: _Accepted) -> bool:
        """Takes a new connection in, at the cost of a waiting one if need be; False when all are busy."""
        peer = accepted.peer
        if self._per_address[str(peer[0])] >= self._per_address_max:
            self._end_oldest(str(peer[0]))
        if len(self._open) >= self._max and not self._end_oldest(None):
            _log.warning("sql_connection_refused", peer=str(peer[0]), connections=len(self._open))
            return False
        self._open[peer] = accepted
        self._wait(peer)
        return True

    def begin(self, peer: Peer) -> None:
        """Notes that a complete request of this connection is being answered."""
        if peer in self._open:
            self._busy[peer] += 1
            self._stop_waiting(peer)

    def end(self, peer: Peer) -> None:
        """Notes that a request that `begin` named is answered."""
        self._busy[peer] -= 1
        if self._busy[peer] > 0:
            return
        del self._busy[peer]
        if peer in self._open:
            self._wait(peer)

    def closed(self, accepted: _Accepted) -> None:
        if self._open.get(accepted.peer) is accepted:
            del self._open[accepted.peer]
            self._stop_waiting(accepted.peer)

    def _wait(self, peer: Peer) -> None:
        self._waiting[peer] = None
        self._per_address[str(peer[0])] += 1

    def _stop_waiting(self, peer: Peer) -> None:
        if peer not in self._waiting:
            return
        del self._waiting[peer]
        address = str(peer[0])
        self._per_address[address] -= 1
        if self._per_address[address] == 0:
            del self._per_address[address]

    def _end_oldest(self, address: str | None) -> bool:
        """Ends the oldest waiting connection, of this address if one is given."""
        peer = next((peer for peer in self._waiting if address in (None, str(peer[0]))), None)
        if peer is None:
            return False
        accepted = self._open.pop(peer)
        self._stop_waiting(peer)
        with suppress(OSError):
            accepted.shutdown(socket.SHUT_RDWR)  # its transport reads the end, and closes it
        return True


class ListeningSocket(socket.socket):
    """Accepts connections for asyncio, as many as `connections` admits. It does not fail when descriptors run out."""

    def __init__(self, listening: socket.socket, connections: SqlConnections) -> None:
        """Takes the descriptor of `listening` over."""
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self.setblocking(False)
        self._connections = connections
        self._reserve: int | None = os.open(os.devnull, os.O_RDONLY)

    def accept(self) -> tuple[socket.socket, object]:
        while True:
            try:
                opened, peer = super().accept()
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS or not self._refuse_one():
                    raise
                continue
            accepted = _Accepted(opened, peer, self._connections)
            if self._connections.admit(accepted):
                return accepted, peer
            accepted.close()

    def _refuse_one(self) -> bool:
        """Gives the reserve up for a moment, so that a connection is refused at once and does not wait in the queue."""
        if self._reserve is None:
            return False
        os.close(self._reserve)
        self._reserve = None
        try:
            opened, peer = super().accept()
        except BlockingIOError:
            return False
        else:
            opened.close()
            _log.warning("sql_connection_refused", peer=str(peer[0]), reason="no descriptor is left")
            return True
        finally:
            with suppress(OSError):
                self._reserve = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
        super().close()


class _Accepted(socket.socket):
    """Reports when it is closed."""

    def __init__(self, opened: socket.socket, peer: Peer, connections: SqlConnections) -> None:
        super().__init__(opened.family, opened.type, opened.proto, fileno=opened.detach())
        self.peer: Peer = peer[:2]
        self._connections = connections

    def close(self) -> None:
        self._connections.closed(self)
        super().close()
