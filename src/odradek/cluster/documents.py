"""What the registry holds beside topics, as JSON documents: settings, quotas, levels of features.

A `Document` says where one is stored, how it is written, and which field of the image carries it. The controller changes any of
them by the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from odradek.cluster.image import ClusterImage, FeatureLevels, ResourceConfigs
from odradek.registry import Node
from odradek.security.quotas import Limits

T = TypeVar("T")

BROKER: Final = 4
"""The type of a broker's settings among `resource_configs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[T]):
    """One document; without a node in the registry the image keeps its default."""

    path: str
    of: Callable[[ClusterImage], T]
    into: Callable[[ClusterImage, T], ClusterImage]
    encode: Callable[[T], Any]
    decode: Callable[[Any], T]

    def data(self, value: T) -> bytes:
        return json.dumps(self.encode(value), sort_keys=True).encode()

    def load(self, image: ClusterImage, node: Node) -> ClusterImage:
        return self.into(image, self.decode(json.loads(node.data)))


def _resource_configs(stored: Mapping[str, Mapping[str, Mapping[str, str]]]) -> ResourceConfigs:
    return {(int(kind), name): configs for kind, named in stored.items() for name, configs in named.items()}


def _by_kind(configs: ResourceConfigs) -> dict[str, dict[str, dict[str, str]]]:
    stored: dict[str, dict[str, dict[str, str]]] = {}
    for (kind, name), values in configs.items():
        stored.setdefault(str(kind), {})[name] = dict(values)
    return stored


def _quotas(stored: list[list[Any]]) -> Limits:
    return {tuple((kind, name) for kind, name in entity): limits for entity, limits in stored}


BROKER_CONFIGS: Final[Document[Mapping[str, str]]] = Document(
    path="/configs/brokers",
    of=lambda image: image.broker_configs,
    into=lambda image, configs: image.with_broker_configs(configs),
    encode=dict,
    decode=dict,
)
"""Dynamic settings of all brokers."""

RESOURCE_CONFIGS: Final[Document[ResourceConfigs]] = Document(
    path="/configs/resources",
    of=lambda image: image.resource_configs,
    into=lambda image, configs: replace(image, resource_configs=configs),
    encode=_by_kind,
    decode=_resource_configs,
)
"""Dynamic settings of single brokers, of groups, and of subscriptions to clients' metrics."""

CLIENT_QUOTAS: Final[Document[Limits]] = Document(
    path="/quotas",
    of=lambda image: image.client_quotas,
    into=lambda image, quotas: replace(image, client_quotas=quotas),
    encode=lambda quotas: [[entity, dict(limits)] for entity, limits in quotas.items()],
    decode=_quotas,
)

FEATURES: Final[Document[FeatureLevels]] = Document(
    path="/features",
    of=lambda image: image.features,
    into=lambda image, features: replace(image, features=features),
    encode=lambda features: {"epoch": features.epoch, "levels": dict(features.levels)},
    decode=lambda stored: FeatureLevels(epoch=stored["epoch"], levels=stored["levels"]),
)

DOCUMENTS: Final[tuple[Document[Any], ...]] = (BROKER_CONFIGS, RESOURCE_CONFIGS, CLIENT_QUOTAS, FEATURES)
