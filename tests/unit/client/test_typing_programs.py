"""The programs of tests/typing use all that the classes in `odradek.__all__` have: a type checker has read each of it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import FunctionType, MemberDescriptorType

import pytest

import odradek

PROGRAMS = Path(__file__).parents[2] / "typing"
CLASSES = {name: value for name in odradek.__all__ if inspect.isclass(value := getattr(odradek, name))}


def public_names(cls: type) -> Iterator[str]:
    """Methods, properties and fields that a class of ours defines itself."""
    for name, value in vars(cls).items():
        is_slot = isinstance(value, MemberDescriptorType)
        if not name.startswith("_") and not isinstance(value, Enum) and (is_dataclass(cls) or not is_slot):
            yield name


def owner(cls: type, name: str) -> type | None:
    """The class in whose body the name is defined."""
    return next((base for base in cls.__mro__ if name in vars(base)), None)


def used_names(source: str) -> set[tuple[type, str]]:
    """What a program uses of variables whose class its annotations say, and of the classes themselves."""
    used: set[tuple[type, str]] = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        types = dict(CLASSES)
        for argument in function.args.args:
            cls = _annotated(argument.annotation)
            if cls is not None:
                types[argument.arg] = cls
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                user = types.get(node.value.id)
                defining = user and owner(user, node.attr)
                used |= {(defining, node.attr)} if defining else set()
    return used


def _annotated(annotation: ast.expr | None) -> type | None:
    name = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return CLASSES.get(name.id) if isinstance(name, ast.Name) else None


USED = set().union(*(used_names(path.read_text(encoding="utf-8")) for path in PROGRAMS.glob("every_*.py")))


@pytest.mark.parametrize("name", CLASSES)
def test_a_program_uses_each_public_name_of_the_class(name: str) -> None:
    bases = [base for base in CLASSES[name].__mro__ if base.__module__.partition(".")[0] == "odradek"]
    missing = {
        f"{base.__name__}.{public_name}"
        for base in bases
        for public_name in public_names(base)
        if (base, public_name) not in USED
    }
    assert not missing, f"add to {PROGRAMS}/every_method.py or every_admin_method.py: {sorted(missing)}"


def test_each_function_of_the_package_is_used() -> None:
    functions = {name for name in odradek.__all__ if isinstance(getattr(odradek, name), FunctionType)}
    text = "".join(path.read_text(encoding="utf-8") for path in PROGRAMS.glob("every_*.py"))
    assert functions == {name for name in functions if f"odradek.{name}(" in text}


def test_a_method_that_no_program_uses_is_noticed() -> None:
    source = (
        "def consuming(consumer: Consumer[str, float]) -> None:\n    consumer.poll()\n    consumer.gone()\n"
    )
    assert used_names(source) == {(odradek.Consumer, "poll")}
    assert (odradek.Consumer, "commit") not in used_names(source)
