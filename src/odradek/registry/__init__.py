"""The coordination store: the port, and the embedded implementation for a single machine."""

from odradek.registry.embedded import EmbeddedRegistry
from odradek.registry.port import (
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Registry,
    RegistryConflict,
    RegistryError,
)

__all__ = [
    "Create", "Delete", "EmbeddedRegistry", "Node", "Operation", "Put", "Registry", "RegistryConflict", "RegistryError",
]  # fmt: skip
