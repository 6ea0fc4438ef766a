"""The features of the cluster and their levels (KIP-584): what ApiVersions tells clients and UpdateFeatures may change.

A level selects the protocol that clients and broker speak, whatever versions of the APIs there are: clients
use KIP-890 if `transaction.version` is at 2. Only features whose APIs this broker serves are supported.
`metadata.version` has one level, the level of the Kafka release whose API this is: there is no metadata log
here whose format could change. Eligible leader replicas are always on. `kraft.version` may be raised, as
`kafka-features upgrade --release-version` does: the quorum stays the controller alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from odradek.cluster.image import ClusterImage
from odradek.model.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    name: str
    min_level: int
    max_level: int
    finalized_level: int
    """The level in use until another is set."""
    api_key: int | None = None
    """The API that comes with it."""


TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
KRAFT_VERSION: Final = "kraft.version"
_KAFKA_4_4: Final = 33

FEATURES: Final = {
    feature.name: feature
    for feature in (
        Feature(
            name=METADATA_VERSION, min_level=_KAFKA_4_4, max_level=_KAFKA_4_4, finalized_level=_KAFKA_4_4
        ),
        Feature(name=ELIGIBLE_LEADER_REPLICAS_VERSION, min_level=1, max_level=1, finalized_level=1),
        Feature(name=KRAFT_VERSION, min_level=0, max_level=1, finalized_level=0),
        Feature(name=GROUP_VERSION, min_level=0, max_level=1, finalized_level=1, api_key=68),
        Feature(name=TRANSACTION_VERSION, min_level=0, max_level=2, finalized_level=2, api_key=22),
        Feature(name=SHARE_VERSION, min_level=0, max_level=2, finalized_level=2, api_key=76),
        Feature(name=STREAMS_VERSION, min_level=0, max_level=1, finalized_level=1, api_key=88),
    )
}


class FeatureUpgrade(IntEnum):
    """The kinds of changes in UpdateFeatures (KIP-778). No stored metadata can be lost, so an unsafe downgrade is safe, too."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def supported(served_keys: Collection[int]) -> list[Feature]:
    """Returns the features whose APIs are served."""
    return [
        feature for feature in FEATURES.values() if feature.api_key is None or feature.api_key in served_keys
    ]


def level_of(image: ClusterImage, name: str) -> int:
    """Returns the level that the cluster speaks now."""
    return image.features.levels.get(name, FEATURES[name].finalized_level)


def check_update(
    image: ClusterImage, served_keys: Collection[int], name: str, level: int, update: int
) -> None:
    """Raises INVALID_UPDATE_VERSION, with what would be allowed, unless the feature may go to this level."""
    feature = next((candidate for candidate in supported(served_keys) if candidate.name == name), None)
    if feature is None:
        raise _refused(f"feature {name!r} is not supported by this broker")
    if not feature.min_level <= level <= feature.max_level:
        raise _refused(
            f"feature {name} supports levels {feature.min_level} to {feature.max_level}, not {level}"
        )
    if update not in tuple(FeatureUpgrade):
        raise _refused(f"upgrade type {update} of feature {name} is not known")
    if level < level_of(image, name) and update == FeatureUpgrade.UPGRADE:
        raise _refused(
            f"feature {name} is lowered to level {level} only by a downgrade: set the upgrade type 2 or 3"
        )


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
