"""Of all units: no client stays open."""

from tests.client_threads import clients_are_closed

__all__ = ["clients_are_closed"]
