"""UpdateFeatures (57): set the levels of features (KIP-584, KIP-778).

Versions 0-2. All updates of a request succeed or fail together: one that is refused is an error of the whole request, as in
Kafka 4. Version 0 has `allow_downgrade` where later ones have an upgrade type; from version 2 on features have no results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from odradek.broker.cluster.features import FeatureUpgrade, check_update, level_of
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.documents import FEATURES
from odradek.cluster.image import FeatureLevels
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.cluster.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_SINCE_UPGRADE_TYPE = 1
_SINCE_NO_RESULTS = 2


def serving(served_keys: Callable[[], Collection[int]]) -> ApiHandler:
    """Returns the handler; which features there are depends on the APIs that are served."""

    async def handle(
        broker: BrokerContext, context: RequestContext, request: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        version = context.api_version
        try:
            levels = _checked(broker, served_keys(), request, version)
            await _set(broker, levels, validate_only=request.validate_only)
        except KafkaError as error:
            return UpdateFeaturesResponse(
                error_code=error.code, error_message=f"no feature was updated: {error.message}"
            )
        results = []
        if version < _SINCE_NO_RESULTS:
            results = [UpdatableFeatureResult(feature=name, error_message="NONE") for name in levels]
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)

    return ApiHandler(57, handle)


def _checked(
    broker: BrokerContext, served_keys: Collection[int], request: UpdateFeaturesRequest, version: int
) -> dict[str, int]:
    levels: dict[str, int] = {}
    for update in request.feature_updates:
        kind = update.upgrade_type if version >= _SINCE_UPGRADE_TYPE else _kind_of(update)
        check_update(broker.image, served_keys, update.feature, update.max_version_level, kind)
        if levels.setdefault(update.feature, update.max_version_level) != update.max_version_level:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION, f"feature {update.feature} is given two different levels"
            )
    return levels


def _kind_of(update: FeatureUpdateKey) -> int:
    return FeatureUpgrade.SAFE_DOWNGRADE if update.allow_downgrade else FeatureUpgrade.UPGRADE


def _set(broker: BrokerContext, levels: dict[str, int], *, validate_only: bool) -> Awaitable[FeatureLevels]:
    def change(before: FeatureLevels) -> FeatureLevels:
        changed = {name: level for name, level in levels.items() if level_of(broker.image, name) != level}
        if not changed:
            return before
        return FeatureLevels(epoch=before.epoch + 1, levels={**before.levels, **changed})

    return broker.controller.alter(FEATURES, change, validate_only=validate_only)
