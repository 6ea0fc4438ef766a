"""ApiVersions (key 18): which APIs and versions a broker speaks. The first request on most connections.

Two rules keep strangers on speaking terms. The response always has the oldest header, since its reader does
not know yet what the broker can do. And a request in a version that the broker does not know is still
answered, in version 0, with UNSUPPORTED_VERSION and the list.

Versions
     1  response: throttle time
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  flexible; the client's name and version (KIP-511); response, tagged: features (KIP-584)
     4  features may start at version 0; in a version 3 answer they are left out, which old clients need
     (KAFKA-17011)
     5  the cluster and the broker that the client means to reach: REBOOTSTRAP_REQUIRED for another one (KIP-1242)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api=18, versions="0-5", flexible="3+"):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, api=18, versions="0-5", flexible="3+"):
    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
