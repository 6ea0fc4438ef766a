"""Limit of the age of this broker's cluster image where access rules decide: `odradek.access.max.age.ms`.

A broker that is cut off must not apply a removed rule without a time limit. Half of the time is for
the way from the registry to the controller, which confirms its office, and half for the way from the controller to this
broker. A broker over its half serves super users only. A controller over its half gives no image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.config.access import AccessConfig


class ImageAge:
    """The age of this broker's cluster image, with the limit above which it decides about super users only. Used on the
    event loop only. `now` is monotonic, in seconds."""

    def __init__(self, now: Callable[[], float], *, max_s: float) -> None:
        self.now: Final = now
        self._half_s = max_s / 2
        self._known_s = now()

    def heard(self, asked_s: float) -> None:
        """Notes that the image is as new as the answer to a request of this time."""
        self._known_s = max(self._known_s, asked_s)

    @property
    def age_s(self) -> float:
        """The age of the image in seconds: this broker knows of all earlier changes."""
        return self.now() - self._known_s

    @property
    def is_over(self) -> bool:
        return self.age_s > self._half_s


def bounded_age(config: AccessConfig, now: Callable[[], float]) -> ImageAge | None:
    """Returns the bounded age of the image; None where no access rules decide, or where they never expire."""
    max_ms = config.odradek_access_max_age_ms
    return ImageAge(now, max_s=max_ms / 1000) if max_ms and config.authorizer_class_name else None
