"""Our Java in Spark's JVM: Spark's Janino compiles it once for each home of links, into existing loaders.

So there is no jar, and no compiler of Java is needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from py4j import protocol as py4j_protocol
    from py4j.java_gateway import JVMView
else:
    py4j_protocol = lazy("py4j.protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaSource:
    """A file of Java. `classes`: their names, each after those that it extends or makes. `beside`: a class of the same package,
    whose loader gets them. `anchor`: the module in whose directory the file is.
    """

    package: str
    beside: str
    anchor: str
    file: str
    classes: tuple[str, ...]

    @property
    def text(self) -> str:
        return resources.files(self.anchor).joinpath(self.file).read_text("utf-8")


def define(jvm: JVMView, source: JavaSource, cache: Path | None) -> None:
    """Defines the classes in a JVM, unless an earlier session did.

    `cache`: a directory that may be there, for what was compiled; None: compile. Py4JError where Java refuses, OSError where
    files do.
    """
    compiled = _compiled(jvm, source, cache)
    if _has_class(jvm, f"{source.package}.{source.classes[-1]}"):
        return
    handles = jvm.java.lang.invoke.MethodHandles
    beside = jvm.java.lang.Class.forName(f"{source.package}.{source.beside}")
    lookup = handles.privateLookupIn(beside, handles.lookup())
    for name in source.classes:
        lookup.defineClass(compiled[name])


def _has_class(jvm: JVMView, name: str) -> bool:
    try:
        jvm.java.lang.Class.forName(name)
    except py4j_protocol.Py4JJavaError:  # ClassNotFoundException
        return False
    return True


def _compiled(jvm: JVMView, source: JavaSource, cache: Path | None) -> Mapping[str, bytes]:
    text = source.text
    directory = None if cache is None else cache / hashlib.sha256(text.encode()).hexdigest()[:16]
    if directory is not None and directory.is_dir():
        return {name: (directory / f"{name}.class").read_bytes() for name in source.classes}
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(text)
    written = compiler.getBytecodes()
    compiled = {name: bytes(written[f"{source.package}.{name}"]) for name in source.classes}
    if directory is not None:
        _keep(directory, compiled)
    return compiled


def _keep(directory: Path, compiled: Mapping[str, bytes]) -> None:
    """Stores all of it or nothing: several processes may start at once."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
    for name, content in compiled.items():
        with (draft / f"{name}.class").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    try:
        draft.rename(directory)
    except OSError:
        shutil.rmtree(draft)  # another process was faster
