"""The classes of a JVM, looked up once.

PySpark asks for a class by name whenever it calls a static method: `jvm.PythonUtils`, then its `toSeq`. Py4J sends each of the
two to the JVM, which looks for a short name in all of Spark's jars before it looks among its imports. A program's plan has a
third of its calls for that.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaGateway, JavaMember, JavaPackage, JVMView


class RememberingView(JVMView):  # type: ignore[misc]
    """A `gateway.jvm` that remembers names. It asks again for names that did not exist: a jar may have been added since."""

    def __getattr__(self, name: str) -> object:
        return _remembered(self, name, super().__getattr__(name))


class _RememberingPackage(JavaPackage):  # type: ignore[misc]
    def __getattr__(self, name: str) -> object:
        return _remembered(self, name, super().__getattr__(name))


class _RememberingClass(JavaClass):  # type: ignore[misc]
    """A Java class that caches its methods. A static field is read each time, because it may change."""

    def __getattr__(self, name: str) -> object:
        return _remembered(self, name, super().__getattr__(name))


def remember_names(gateway: JavaGateway) -> None:
    """Makes the gateway's view of the JVM remember the names that it looks up."""
    view = gateway.jvm
    gateway.jvm = RememberingView(view._gateway_client, view._jvm_name, id=view._id)


def _remembered(owner: object, name: str, member: Any) -> object:
    if type(member) is JavaPackage:
        if not name.islower():  # Py4J takes an unknown class for a package
            return member
        member = _RememberingPackage(member._fqn, member._gateway_client, member._jvm_id)
    elif type(member) is JavaClass:
        member = _RememberingClass(member._fqn, member._gateway_client)
    elif type(member) is not JavaMember:
        return member
    vars(owner)[name] = member
    return member
