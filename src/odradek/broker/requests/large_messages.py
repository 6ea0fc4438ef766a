"""Messages with many elements: read and written in steps, and refused beyond `max.request.elements`.

A frame of 100 MB may hold fifty million elements, each of which becomes an object of some hundred bytes. So they are counted
before anything is made of them. Imported when the first such message comes.
"""

from __future__ import annotations

from odradek.broker.requests.context import BrokerContext
from odradek.broker.requests.refusals import UnfitResponse, log_first_refusals
from odradek.broker.requests.throttling import Charge
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, OdradekError
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, PeerError
from odradek.protocol import APIS, Message, RequestHeader, decode_steps, encode_response_steps
from odradek.runtime.ports import Buffer
from odradek.telemetry import events

_log = events.get("broker")


async def read(broker: BrokerContext, header: RequestHeader, frame: Buffer, position: int) -> Message:
    """Returns the request in a frame. TooManyElements when it has more than the setting allows."""
    request = APIS[header.api_key].request
    steps = decode_steps(
        request, header.api_version, frame, position, broker.config.network.max_request_elements
    )
    message, _ = await broker.turns.begin().drive(steps)
    return message


def refusal(config: BrokerConfig, header: RequestHeader) -> Message:
    """Returns the answer to a request with too many elements: INVALID_REQUEST. PeerError for an API whose response has no
    place for an error of the whole request; Kafka hangs up on what it cannot read, too.
    """
    api = APIS[header.api_key]
    reason = (
        f"the request has more than max.request.elements={config.network.max_request_elements} elements: "
        "ask for fewer at once, or raise that setting"
    )
    fields = {
        field.name: field.versions
        for field in api.response.FIELDS
        if field.name in ("error_code", "error_message")
    }
    if header.api_version not in fields.get("error_code", ()):
        raise PeerError(f"{api.name}: {reason}")
    values: dict[str, object] = {"error_code": ErrorCode.INVALID_REQUEST}
    if header.api_version in fields.get("error_message", ()):
        values["error_message"] = reason
    else:
        _log.warning("request_too_large", api=api.name, client=header.client_id or "", reason=reason)
    return api.response(**values)


async def write(
    broker: BrokerContext,
    connection: Connection,
    header: RequestHeader,
    charge: Charge | None,
    message: Message,
) -> Chunks:
    """Returns the bytes of a response; what it refuses goes into the log."""
    key, version = header.api_key, header.api_version
    if charge is not None:
        message = charge.with_throttle_time(version, message)
    try:
        steps = encode_response_steps(key, version, header.correlation_id, message)
        chunks = await broker.turns.begin().drive(steps)
    except OdradekError as error:
        raise UnfitResponse(f"{APIS[key].name} version {version}: {error}") from error
    if charge is not None:
        chunks = charge.encoded(version, message, lambda _: chunks)
    now = broker.runtime.clock.monotonic
    for refusal_logged in log_first_refusals(connection, header, APIS[key].name, message, now):
        broker.requests.failed(key, refusal_logged.code)
    return chunks
