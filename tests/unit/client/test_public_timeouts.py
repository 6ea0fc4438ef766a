"""Public calls have one name for the longest time that they take: `timeout_s`, in seconds."""

from __future__ import annotations

import inspect

import pytest

import odradek
from odradek.client.producer.delivery import Delivery

CLASSES = [value for name in odradek.__all__ if inspect.isclass(value := getattr(odradek, name))]


@pytest.mark.parametrize("public", [*CLASSES, Delivery], ids=lambda public: public.__name__)
def test_a_time_limit_of_a_public_call_is_called_timeout_s(public: type) -> None:
    for name, member in inspect.getmembers(public, callable):
        if name.startswith("_") or (getattr(member, "__module__", None) or "").partition(".")[0] != "odradek":
            continue
        for parameter in inspect.signature(member).parameters:
            assert not f"_{parameter}".endswith("_timeout"), f"{public.__name__}.{name}({parameter})"
