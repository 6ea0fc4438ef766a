"""Choice of an API's version: the highest that both sides know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import Api, VersionRange
from odradek.protocol.messages.metadata.api_versions import ApiVersionsResponse

GREETING_FALLBACK: Final = 0
"""The version of ApiVersions that every broker answers."""


class PeerVersions:
    """The API versions that one broker offers."""

    __slots__ = ("_ranges", "_who", "features")

    def __init__(
        self, ranges: Mapping[int, VersionRange], who: str, features: Mapping[str, int] | None = None
    ) -> None:
        self._ranges = ranges
        self._who = who
        self.features: Final = features or {}
        """The finalized level of each feature (KIP-584)."""

    @classmethod
    def from_answer(cls, response: ApiVersionsResponse, who: str) -> PeerVersions:
        """Reads an answer to ApiVersions. `who` names the broker in error messages."""
        return cls(
            {
                api_key.api_key: VersionRange(api_key.min_version, api_key.max_version)
                for api_key in response.api_keys
            },
            who,
            {
                finalized_feature.name: finalized_feature.max_version_level
                for finalized_feature in response.finalized_features
            },
        )

    def choose(self, api: Api, *, at_most: int | None = None) -> int:
        """Returns the version to send; UNSUPPORTED_VERSION, in words for people, when there is none.

        `at_most`: the caller cannot use what newer versions need, such as topic ids. One that asks for more than the latest
        stable version gets that where the broker offers it.
        """
        offered = self._ranges.get(api.key)
        if offered is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self._who} does not offer {api.name}"
            )
        highest = api.latest_stable if at_most is None else min(at_most, api.versions.max)
        version = min(highest, offered.max)
        if version < max(offered.min, api.versions.min):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self._who} speaks {api.name} {offered},"
                f" this client {VersionRange(api.versions.min, highest)}",
            )
        return version

    def offers(self, api: Api) -> bool:
        return api.key in self._ranges


def greeting_retry(response: ApiVersionsResponse, api: Api) -> int:
    """Returns the version of ApiVersions to try after UNSUPPORTED_VERSION, from the list in the refusal (KIP-511)."""
    for api_key in response.api_keys:
        if api_key.api_key == api.key:
            return max(GREETING_FALLBACK, min(api_key.max_version, api.latest_stable))
    return GREETING_FALLBACK
