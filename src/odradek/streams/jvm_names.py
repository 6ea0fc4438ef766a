"""The classes of a JVM, looked up once.

PySpark asks for a class by name whenever it calls a static method: `jvm.PythonUtils`, then its `toSeq`. Py4J sends each of the
two to the JVM, which looks for a short name in all of Spark's jars before it looks among its imports. A program's plan has a
third of its calls for that.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


class KnownNames(JVMView):  # type: ignore[misc]
    """What `gateway.jvm` is, with a memory. What is not there is asked for again: a jar may have come meanwhile."""

    def __getattr__(self, name: str) -> Any:
        return _remembered(self, name, super().__getattr__(name))


class _KnownPackage(JavaPackage):  # type: ignore[misc]
    def __getattr__(self, name: str) -> Any:
        return _remembered(self, name, super().__getattr__(name))


class _KnownClass(JavaClass):  # type: ignore[misc]
    """It remembers methods. A static field may change."""

    def __getattr__(self, name: str) -> Any:
        return _remembered(self, name, super().__getattr__(name))


def remember_names(gateway: Any) -> None:
    """From now on."""
    view = gateway.jvm
    gateway.jvm = KnownNames(view._gateway_client, view._jvm_name, id=view._id)


def _remembered(owner: object, name: str, found: Any) -> Any:
    if type(found) is JavaPackage:
        if not name.islower():  # Py4J takes an unknown class for a package
            return found
        found = _KnownPackage(found._fqn, found._gateway_client, found._jvm_id)
    elif type(found) is JavaClass:
        found = _KnownClass(found._fqn, found._gateway_client)
    elif type(found) is not JavaMember:
        return found
    vars(owner)[name] = found
    return found
