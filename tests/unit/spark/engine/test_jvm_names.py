"""Names of a JVM's classes: each is asked for once, as long as it is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("py4j")

from py4j import protocol
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from py4j.protocol import Py4JError

from odradek.spark.engine.jvm_names import remember_names

CLASSES = {"PythonUtils": "org.apache.spark.api.python.PythonUtils", "org.apache.Known": "org.apache.Known"}


class Jvm:
    """Answers as Py4J's gateway does, and keeps what was asked."""

    def __init__(self) -> None:
        self.gateway_property = SimpleNamespace(pool=None)
        self.converters: list[Any] = []
        self.asked: list[str] = []

    def send_command(self, command: str) -> str:
        kind, subject, member = command.split("\n")[1:4]
        name = (
            subject if kind == protocol.REFL_GET_UNKNOWN_SUB_COMMAND_NAME.strip() else f"{subject}.{member}"
        )
        self.asked.append(name)
        if kind == protocol.REFL_GET_MEMBER_SUB_COMMAND_NAME.strip():
            if member == "toSeq":
                return protocol.SUCCESS + protocol.METHOD_TYPE
            return f"{protocol.SUCCESS}{protocol.INTEGER_TYPE}{len(self.asked)}"
        if name in CLASSES:
            return protocol.SUCCESS_CLASS + CLASSES[name]
        return protocol.SUCCESS_PACKAGE if name.startswith("org") else protocol.ERROR


@pytest.fixture
def asked() -> tuple[Any, list[str]]:
    jvm = Jvm()
    gateway = SimpleNamespace(jvm=JVMView(jvm, protocol.DEFAULT_JVM_NAME, id=protocol.DEFAULT_JVM_ID))
    remember_names(gateway)
    return gateway.jvm, jvm.asked


def test_a_class_and_its_methods_are_asked_for_once(asked: tuple[Any, list[str]]) -> None:
    view, names = asked
    methods = [view.PythonUtils.toSeq for _ in range(3)]
    assert all(isinstance(method, JavaMember) for method in methods)
    assert names == ["PythonUtils", f"{CLASSES['PythonUtils']}.toSeq"]


def test_packages_are_asked_for_once(asked: tuple[Any, list[str]]) -> None:
    view, names = asked
    for _ in range(3):
        assert isinstance(view.org.apache.Known, JavaClass)
    assert names == ["org", "org.apache", "org.apache.Known"]


def test_a_class_that_is_not_there_yet_is_asked_for_again(asked: tuple[Any, list[str]]) -> None:
    view, names = asked
    for _ in range(2):
        assert isinstance(view.org.Missing, JavaPackage)  # Py4J takes it for one
        with pytest.raises(Py4JError):
            _ = view.Missing
    assert names == ["org", "org.Missing", "Missing", "org.Missing", "Missing"]


def test_a_static_field_is_read_each_time(asked: tuple[Any, list[str]]) -> None:
    view, _ = asked
    assert view.PythonUtils.counter < view.PythonUtils.counter
