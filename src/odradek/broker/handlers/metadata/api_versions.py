"""ApiVersions (18): what this broker serves, in which versions.

Versions 0-5. From v3 the client names its software (KIP-511) and gets the levels of features (KIP-584); those
that begin at level 0 only from v4 on, because older clients cannot read them (KAFKA-17011). Produce is listed
from version 0, though 0 to 2 are refused: librdkafka switches features off otherwise (KAFKA-18659).
InitProducerId 6 (KIP-939), which Kafka has not released, is listed where two-phase commit is allowed. What
brokers ask of each other is named to brokers alone. From v5 the client names the cluster and broker that it
means to reach: for another one the answer is REBOOTSTRAP_REQUIRED (KIP-1242).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from odradek.broker.cluster.features import Feature, level_of, supported
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol import APIS
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.protocol.messages.metadata.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SINCE_FEATURES: Final = 3
_SINCE_LEVEL_0: Final = 4
_INIT_PRODUCER_ID: Final = 22
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def serving(served_keys: Callable[[], Iterable[int]]) -> ApiHandler:
    """Returns the handler; it asks for the list when it is called, because it is part of that list itself."""

    def handle(
        broker: BrokerContext, context: RequestContext, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        if context.api_version >= _SINCE_FEATURES:
            names = (request.client_software_name, request.client_software_version)
            if not all(_SOFTWARE.match(name) for name in names):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.connection.client_software = names
            to_broker = names[0] == BROKER_SOFTWARE
            if not _is_meant(broker, context, request):
                return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        else:
            to_broker = False
        keys = frozenset(key for key in served_keys() if to_broker or not APIS[key].internal)
        unstable = broker.config.server.unstable_api_versions_enable
        two_phase = broker.config.transaction.two_phase_commit_enable
        listed = [
            ApiVersion(api_key=key, min_version=offered.min, max_version=offered.max)
            for key in sorted(keys)
            if (offered := APIS[key].offered(unstable=unstable or (two_phase and key == _INIT_PRODUCER_ID)))
        ]
        if context.api_version < _SINCE_FEATURES:
            return ApiVersionsResponse(api_keys=listed)
        features = supported(keys)
        levels = {feature.name: level_of(broker.image, feature.name) for feature in features}
        return ApiVersionsResponse(
            api_keys=listed,
            supported_features=_supported(features, from_level_0=context.api_version >= _SINCE_LEVEL_0),
            finalized_features_epoch=broker.image.features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in levels.items()
                if level
            ],
        )

    return ApiHandler(18, handle)


def _is_meant(broker: BrokerContext, context: RequestContext, request: ApiVersionsRequest) -> bool:
    """Tells whether the client has reached the cluster and the broker that it means. What it leaves out is not checked."""
    cluster_id, node_id = broker.image.cluster_id, context.connection.listener.broker_id
    other_cluster = bool(request.cluster_id) and bool(cluster_id) and request.cluster_id != cluster_id
    return not other_cluster and request.node_id in (-1, node_id)


def _supported(features: Iterable[Feature], *, from_level_0: bool) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=feature.name, min_version=feature.min_level, max_version=feature.max_level)
        for feature in features
        if from_level_0 or feature.min_level
    ]
