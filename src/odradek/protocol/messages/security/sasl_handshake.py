"""SaslHandshake (key 17): choose a SASL mechanism.

After version 0 the exchange continues with bare tokens in frames of their own, after version 1 inside
SaslAuthenticate (KIP-152). There will hardly be a version 2: clients up to 2.4 negotiate this API's version
wrongly (KAFKA-9577).
"""

from __future__ import annotations

from odradek.protocol.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, api=17, versions="0-1", flexible="none"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, api=17, versions="0-1", flexible="none"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
