"""The package's own names: lazy, complete, and cheap to import."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

import odradek
import odradek.client
from odradek.records import TimestampType


@pytest.mark.parametrize("module", [odradek, odradek.client])
def test_every_public_name_can_be_had(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        assert getattr(module, name) is not None


@pytest.mark.parametrize("module", [odradek, odradek.client])
def test_other_names_are_refused(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Subscriber'"):
        module.Subscriber  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_the_loader_and_nothing_else() -> None:
    program = (
        "import sys; before = set(sys.modules); import odradek; print(sorted(set(sys.modules) - before))"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    imported = [name for name in eval(process.stdout) if name.startswith(("odradek.", "asyncio", "pyarrow"))]
    assert imported == ["odradek.model", "odradek.model.lazy"]


def test_a_client_does_not_import_pyarrow_before_arrow_is_asked_for() -> None:
    program = "import sys, odradek; odradek.Consumer, odradek.Producer, odradek.Admin; print('pyarrow' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert process.stdout.strip() == "False"


@pytest.mark.parametrize(
    "generic", [odradek.Consumer, odradek.AsyncConsumer, odradek.Producer, odradek.ConsumerRecord]
)
def test_types_of_keys_and_values_can_be_named_at_run_time(generic: Any) -> None:
    assert generic[str, int].__args__ == (str, int)


def test_a_record_with_types_is_a_plain_tuple_all_the_same() -> None:
    record = odradek.ConsumerRecord("t", 0, 1, 2, TimestampType.CREATE_TIME, b"k", b"v", (), 3)
    assert pickle.loads(pickle.dumps(record)) == record == tuple(record)
    assert not hasattr(record, "__dict__")
    assert odradek.ConsumerRecord._make(tuple(record)).value == b"v"
