"""ApiVersions (18): what this broker serves, in which versions.

Versions 0-4. From v3 the client names its software (KIP-511). Produce is listed from version 0, though 0 to 2 are refused:
librdkafka switches features off otherwise (KAFKA-18659).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode
from odradek.protocol import APIS
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def serving(served_keys: Callable[[], Iterable[int]]) -> Served:
    """The handler; it asks for the list when it is called, because it is part of that list itself."""

    def handle(
        parts: Parts, circumstances: Circumstances, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        error = ErrorCode.NONE
        if circumstances.api_version >= 3:
            names = (request.client_software_name, request.client_software_version)
            if all(_SOFTWARE.match(name) for name in names):
                circumstances.connection.client_software = names
            else:
                error = ErrorCode.INVALID_REQUEST
        unstable = parts.config.unstable_api_versions_enable
        listed = [
            ApiVersion(api_key=key, min_version=offered.min, max_version=offered.max)
            for key in sorted(served_keys())
            if (offered := APIS[key].offered(unstable=unstable))
        ]
        return ApiVersionsResponse(error_code=error, api_keys=listed)

    return Served(18, handle)
