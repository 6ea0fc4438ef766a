"""A ticket for the response of a request that a group keeps: what it holds once its client has left."""

from __future__ import annotations

import weakref
from functools import partial

from odradek.broker.handlers.group_requests import AnswerTicket
from odradek.net.replies import Chunks


class Connection:
    """What the encoder of a response belongs to."""


def encoded(connection: Connection, response: str) -> Chunks:
    return [response.encode()]


def refused(connection: Connection, error: BaseException) -> str:
    return "refused"


def test_a_ticket_whose_client_has_left_does_not_keep_the_connection() -> None:
    connection = Connection()
    ticket: AnswerTicket[str] = AnswerTicket(partial(encoded, connection), partial(refused, connection))
    known = weakref.ref(connection)
    del connection
    assert known() is not None
    assert ticket.cancel()
    assert known() is None
    ticket.answer("too late")
    assert not ticket.cancel()
    assert ticket.cancelled()
