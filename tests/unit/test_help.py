"""What `help` shows of the names that users import: sentences, real types and defaults, and the path of the import."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from types import FunctionType
from typing import Any, get_type_hints
from uuid import UUID

import pytest

import odradek
from odradek.client.settings.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    ShareConsumerSettings,
)

PACKAGES = (
    "odradek",
    "odradek.testing",
    "odradek.retry",
    "odradek.frames",
    "odradek.spark",
    "odradek.streams",
)
SETTINGS = {
    "Admin": AdminSettings,
    "Consumer": ConsumerSettings,
    "Producer": ProducerSettings,
    "ShareConsumer": ShareConsumerSettings,
}
_END = re.compile(r"[.:?!)]\Z")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public_objects() -> Iterator[tuple[str, Any]]:
    """Classes and functions by the names that users write."""
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or isinstance(value, FunctionType):
                yield f"{package}.{name}", value


def members(path: str, cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class of ours defines, those that it inherits among them."""
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        value = inspect.getattr_static(cls, name)
        is_ours = owner.__module__.partition(".")[0] == "odradek" and not name.startswith("_")
        if is_ours and isinstance(value, FunctionType | property | classmethod | staticmethod):
            yield f"{path}.{name}", value


def documented() -> dict[str, Any]:
    """The public objects and their members, by their paths."""
    pytest.importorskip("pyspark", reason="PySpark is absent")
    objects = dict(public_objects())
    classes = [(path, cls) for path, cls in objects.items() if inspect.isclass(cls)]
    return objects | {path: value for name, cls in classes for path, value in members(name, cls)}


def problems_of_text(value: Any) -> list[str]:
    text = inspect.getdoc(value)
    if not text:
        return ["no docstring"]
    paragraphs = [part for part in text.split("\n\n") if not part.startswith(" ")]
    opening = text.lstrip("`")
    return [
        *(["the first word is no beginning of a sentence"] if not opening[:1].isupper() else []),
        *(f"no end of a sentence: {part[-40:]!r}" for part in paragraphs[:1] if not _END.search(part)),
    ]


def problems_of_signature(value: Any) -> list[str]:
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if isinstance(function, type) and (issubclass(function, Enum) or function.__init__ is Exception.__init__):
        return []
    signature = inspect.signature(function)
    problems = []
    for parameter in signature.parameters.values():
        annotation = str(parameter.annotation)
        if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls"):
            problems.append(f"{parameter.name} has no type")
        if parameter.kind is parameter.VAR_KEYWORD and not annotation.startswith("Unpack["):
            problems.append(f"**{parameter.name} does not name its parameters")
        if parameter.kind is parameter.VAR_POSITIONAL and (parameter.name == "args" or annotation == "Any"):
            problems.append(f"*{parameter.name} does not name its parameters")
        if _ADDRESS.search(repr(parameter.default)):
            problems.append(f"{parameter.name} has a default with an address")
    if not isinstance(function, type) and signature.return_annotation is signature.empty:
        problems.append("no type of its result")
    return problems


def test_a_public_name_says_where_it_is_imported_from() -> None:
    pytest.importorskip("pyspark", reason="PySpark is absent")
    paths = {path: f"{value.__module__}.{value.__qualname__}" for path, value in public_objects()}
    assert {path: said for path, said in paths.items() if said != path} == {}


def test_public_names_have_docstrings_that_are_sentences() -> None:
    faults = {path: problems_of_text(value) for path, value in documented().items()}
    assert {path: problems for path, problems in faults.items() if problems} == {}


def test_signatures_have_types_and_defaults_that_can_be_read() -> None:
    values = {path: value for path, value in documented().items() if not isinstance(value, property)}
    assert len(values) > 300, "the walk misses public names"
    faults = {path: problems_of_signature(value) for path, value in values.items()}
    assert {path: problems for path, problems in faults.items() if problems} == {}


@pytest.mark.parametrize("name", [*SETTINGS, *(f"Async{name}" for name in SETTINGS)])
def test_help_on_a_client_lists_each_setting_with_its_type_default_and_meaning(name: str) -> None:
    settings: type[ClientSettings] = SETTINGS[name.removeprefix("Async")]
    cls = getattr(odradek, name)
    text = " ".join(pydoc.render_doc(cls, renderer=pydoc.plaintext).replace("|", " ").split())
    parameters = inspect.signature(cls).parameters
    for keyword, setting in settings.settings.items():
        assert parameters[keyword].default == setting.default
        assert isinstance(parameters[keyword].annotation, str)
        assert " ".join(setting.meaning[1:].split()) in text


def test_fields_keep_types_that_can_be_resolved() -> None:
    assert get_type_hints(odradek.OffsetAndMetadata)["topic_id"] is UUID
    assert set(get_type_hints(odradek.NewTopic)) == set(odradek.NewTopic.__slots__)


class _Sentinel:
    """A default that shows its address."""


def _unreadable(servers, *args: Any, unset: object = _Sentinel(), **kwargs: Any):  # type: ignore[no-untyped-def]
    """lowercase, and no end"""


def test_what_a_stranger_cannot_read_is_a_problem() -> None:
    assert len(problems_of_text(_unreadable)) == 2
    assert problems_of_text(public_objects) == []
    assert problems_of_signature(_unreadable) == [
        "servers has no type",
        "*args does not name its parameters",
        "unset has a default with an address",
        "**kwargs does not name its parameters",
        "no type of its result",
    ]
    assert problems_of_signature(problems_of_text) == []
