"""Forward (10001, between brokers): serve, as the controller, a request that another broker passes on
(`broker/cluster/forwarding.py`).

Version 0. NOT_CONTROLLER when this broker is not the controller, INVALID_REQUEST for a request that brokers serve themselves or
that cannot be read, UNSUPPORTED_VERSION for one of a version that only the newer broker that passes it on knows. The connection
stays: other requests of that broker are on it. The asker that it names is believed only from a broker that logged in.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from odradek.broker.cluster.forwarded_apis import FORWARDED
from odradek.broker.requests import authorization
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.net.replies import Chunks, HeldReply, Reply
from odradek.protocol import APIS, decode_request_header
from odradek.protocol.messages.cluster.forward import ForwardRequest, ForwardResponse
from odradek.security.principals import Requester
from odradek.telemetry import events

_log = events.caused_by_peers("broker")
_SIZE_BYTES: Final = 4
_BY_TOKEN: Final = 2


async def handle(broker: BrokerContext, context: RequestContext, request: ForwardRequest) -> ForwardResponse:
    if not broker.cluster.leads:
        return ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER)
    frame = memoryview(request.request_data)
    asker = None
    if authorization.speaks_for_others(context.requester, is_gated=broker.gate is not None):
        asker = Requester(
            request.principal,
            request.client_host,
            is_by_token=request.authentication == _BY_TOKEN,
            is_authenticated=request.authentication > 0,
        )
    try:
        header, _ = decode_request_header(frame)
        if header.api_key not in FORWARDED:
            return ForwardResponse(error_code=ErrorCode.INVALID_REQUEST)
        if header.api_version not in APIS[header.api_key].versions:
            return ForwardResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        chunks = await _settled(broker.serve(context.connection, frame, asker))
    except KafkaError as error:  # the term may have ended meanwhile: NOT_CONTROLLER
        _log.warning("forwarded_request_refused", client=request.client_host, reason=error.message)
        return ForwardResponse(error_code=error.code)
    except OdradekError as error:
        _log.warning("forwarded_request_refused", client=request.client_host, reason=str(error))
        return ForwardResponse(error_code=ErrorCode.INVALID_REQUEST)
    if chunks is None:
        return ForwardResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    image = broker.image
    return ForwardResponse(
        response_data=b"".join(chunks)[_SIZE_BYTES:],
        controller_epoch=image.controller_epoch,
        image_version=image.version,
    )


async def _settled(reply: Reply) -> Chunks | None:
    if isinstance(reply, HeldReply):
        reply = reply.chunks
    return await reply if isinstance(reply, Awaitable) else reply


SERVED = ApiHandler(10001, handle)
