"""The features of the cluster and their levels (KIP-584): what ApiVersions tells clients and UpdateFeatures may change.

A client of KIP-890 speaks its protocol if `transaction.version` is at 2, whatever versions of the APIs there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    name: str
    min_level: int
    max_level: int
    finalized_level: int


TRANSACTION_VERSION: Final = "transaction.version"

FEATURES: Final = {
    feature.name: feature
    for feature in (Feature(name=TRANSACTION_VERSION, min_level=0, max_level=2, finalized_level=2),)
}
FEATURES_EPOCH: Final = 0
"""Grows when a level changes; no level does yet."""
