"""What the engine's process makes of errors of its JVM."""

from __future__ import annotations

import pytest

pytest.importorskip("py4j", reason="py4j is absent")

from py4j.protocol import Py4JError, Py4JNetworkError, get_return_value

from odradek.spark.engine.session import is_jvm_gone


def test_an_empty_answer_says_that_the_jvm_is_gone() -> None:
    with pytest.raises(Py4JError) as empty:
        get_return_value("", None, "o1", "isActive")
    assert is_jvm_gone(empty.value)


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (ConnectionResetError(), True),
        (EOFError(), True),
        (Py4JError("An error occurred while calling o1.start. Trace:\njava.lang.Error"), False),
        (ValueError("no query"), False),
    ],
)
def test_other_errors_say_so_or_not(error: Exception, is_gone: bool) -> None:
    assert is_jvm_gone(error) is is_gone
