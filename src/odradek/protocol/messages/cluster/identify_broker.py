"""IdentifyBroker (key 10002): which broker a process is. Odradek's own, between brokers.

A broker that finds its id registered asks the process at the registered address, before it takes the registration over: if a
process other than itself answers that it is this broker, one of the two runs on a copy of the other's data. `incarnation` is
drawn when a process starts.
"""

from __future__ import annotations

from odradek.protocol.schema import Message, int16, int32, string


class IdentifyBrokerRequest(Message, api=10002, versions="0", flexible="0+"):
    broker_id: int = int32("0+")


class IdentifyBrokerResponse(Message, api=10002, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    broker_id: int = int32("0+")
    cluster_id: str = string("0+")
    incarnation: str = string("0+")
