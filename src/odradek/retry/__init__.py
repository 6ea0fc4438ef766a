"""Consumers that try again later: retry topics with delays, then a dead-letter topic. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.retry.aio import AsyncRetryConsumer
    from odradek.retry.consumer import RetryConsumer
    from odradek.retry.policy import Reject, RetryMode, RetryPolicy
    from odradek.retry.routing import Output

_WHERE: Final = {
    "odradek.retry.aio": ("AsyncRetryConsumer",),
    "odradek.retry.consumer": ("RetryConsumer",),
    "odradek.retry.policy": ("Reject", "RetryMode", "RetryPolicy"),
    "odradek.retry.routing": ("Output",),
}

__all__ = ["AsyncRetryConsumer", "Output", "Reject", "RetryConsumer", "RetryMode", "RetryPolicy"]

__getattr__ = lazy_names(globals(), _WHERE)
