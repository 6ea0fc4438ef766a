"""The coordination store: the port, and the embedded implementation for a single machine."""

from odradek.registry.embedded import EmbeddedRegistry
from odradek.registry.port import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Registry,
    RegistryConflict,
    RegistryError,
    SessionExpired,
)

__all__ = [
    "Check", "Create", "Delete", "EmbeddedRegistry", "Node", "Operation", "Put", "Registry", "RegistryConflict",
    "RegistryError", "SessionExpired",
]  # fmt: skip
