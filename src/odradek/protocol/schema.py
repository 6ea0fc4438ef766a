"""The declaration of messages: field types, and the classes `Struct` and `Message`.

    class DeleteRecordsRequest(Message, api=21, versions="0-2", flexible="2+"):
        topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
        timeout_ms: int = int32("0+")

The annotation is for people and for mypy, which checks it against what the field type returns; the value on
the right is all that the runtime looks at. At class creation the values become slots and `FIELDS`; nothing
else is computed, so that importing a declaration stays cheap. `__init__` is compiled when the class is first
called.

**Frozen.** mypy refuses assignment to a message's attributes (`frozen_default`). At run time the slots are
writable: with true freezing every attribute of every decoded struct has to go through `object.__setattr__`,
and making a struct of six fields took 497 ns instead of 89 ns (315 ns through the slots' own `__set__`).
Treat messages as values; `replace` makes a changed copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    dataclass_transform,
    overload,
)
from uuid import UUID

from odradek.model.ids import ZERO_UUID
from odradek.protocol.versions import NO_VERSIONS, VersionRange, parse_versions

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")
S = TypeVar("S", bound="Struct")

_ABSENT: Final[Any] = object()


class _Options(TypedDict, total=False):
    """The options of any field other than its type and versions; `Field` has the same names."""

    ignorable: bool
    tag: int
    tagged: str


class _FreshList:
    """Marks the default of an array field: a new empty list for each message."""

    def __repr__(self) -> str:
        return "[]"


FRESH_LIST: Final = _FreshList()


class Field:
    """One field of one struct: where it exists, how it is written, and what it holds when it is left out."""

    __slots__ = ("default", "ignorable", "kind", "name", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: Kind[Any],
        versions: str,
        *,
        default: object = _ABSENT,
        nullable: str | None = None,
        ignorable: bool = False,
        tag: int | None = None,
        tagged: str | None = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = parse_versions(versions)
        self.nullable = parse_versions(nullable) if nullable else NO_VERSIONS
        self.default = kind.zero() if default is _ABSENT else default
        self.ignorable = ignorable
        self.tag = tag
        self.tagged = NO_VERSIONS if tag is None else parse_versions(tagged) if tagged else self.versions

    def __repr__(self) -> str:
        return f"<{self.name}: {self.kind.name} {self.versions}>"


class Kind(Generic[T]):
    """A type on the wire. Calling it declares a field of this type."""

    __slots__ = ("_zero", "format", "name", "size")

    def __init__(self, name: str, zero: T, *, format: str = "", size: int = 0) -> None:  # noqa: A002
        self.name = name
        self._zero = zero
        self.format = format
        """The `struct` character of a fixed-width type, "" for the others."""
        self.size = size
        """Bytes on the wire of a fixed-width type."""

    def zero(self) -> object:
        """Returns a field's value when neither the sender nor the declaration sets one."""
        return self._zero

    @overload
    def __call__(self, versions: str, *, default: T = ..., **options: Unpack[_Options]) -> T: ...

    @overload
    def __call__(
        self, versions: str, *, nullable: str, default: T | None = ..., **options: Unpack[_Options]
    ) -> T | None: ...

    def __call__(self, versions: str, **options: Any) -> Any:
        """Declares a field. `tagged` defaults to all of `versions` once a `tag` is given."""
        return Field(self, versions, **options)


class ArrayKind(Kind[list[T]]):
    """A sequence of elements of one kind."""

    __slots__ = ("element",)

    def __init__(self, element: Kind[T]) -> None:
        super().__init__(f"[]{element.name}", [])
        self.element = element

    def zero(self) -> object:
        return FRESH_LIST


class StructKind(Kind[S]):
    """A nested struct."""

    __slots__ = ("cls",)

    def __init__(self, cls: type[S]) -> None:
        super().__init__(cls.__name__, _ABSENT)
        self.cls = cls

    def zero(self) -> object:
        return self.cls.default_instance()


int8: Final = Kind("int8", 0, format="b", size=1)
int16: Final = Kind("int16", 0, format="h", size=2)
uint16: Final = Kind("uint16", 0, format="H", size=2)
int32: Final = Kind("int32", 0, format="i", size=4)
int64: Final = Kind("int64", 0, format="q", size=8)
float64: Final = Kind("float64", 0.0, format="d", size=8)
boolean: Final = Kind("bool", False, format="?", size=1)
uuid: Final[Kind[UUID]] = Kind("uuid", ZERO_UUID, format="16s", size=16)
string: Final = Kind("string", "")
bytestring: Final = Kind("bytes", b"")
record_set: Final[Kind[Buffer | None]] = Kind("records", None)

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@overload
def array(element: type[S], versions: str, **options: Unpack[_Options]) -> list[S]: ...


@overload
def array(
    element: type[S], versions: str, *, nullable: str, default: None = ..., **options: Unpack[_Options]
) -> list[S] | None: ...


@overload
def array(element: Kind[T], versions: str, **options: Unpack[_Options]) -> list[T]: ...


@overload
def array(
    element: Kind[T], versions: str, *, nullable: str, default: None = ..., **options: Unpack[_Options]
) -> list[T] | None: ...


def array(element: Any, versions: str, **options: Any) -> Any:
    """Declares an array field of structs or of a plain type."""
    inner = element if isinstance(element, Kind) else StructKind(element)
    return Field(ArrayKind(inner), versions, **options)


@overload
def struct(cls: type[S], versions: str, **options: Unpack[_Options]) -> S: ...


@overload
def struct(
    cls: type[S], versions: str, *, nullable: str, default: None = ..., **options: Unpack[_Options]
) -> S | None: ...


def struct(cls: type[Any], versions: str, **options: Any) -> Any:
    """Declares a field that contains one nested struct."""
    return Field(StructKind(cls), versions, **options)


@dataclass_transform(eq_default=True, order_default=False, kw_only_default=True, frozen_default=True)
class StructMeta(type):
    """Turns declared fields into slots. Type checkers see a frozen dataclass."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, object], **options: Any
    ) -> StructMeta:
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                del namespace[key]
        names = tuple(field.name for field in fields)
        namespace.setdefault("__slots__", names)
        namespace["FIELDS"] = tuple(fields)
        namespace["_values"] = staticmethod(attrgetter(*names)) if names else staticmethod(type)
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructMeta):
    """Part of a message: keyword-only arguments, every field with Kafka's default, equality by value."""

    FIELDS: ClassVar[tuple[Field, ...]]
    _values: ClassVar[staticmethod[[Any], Any]]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        # The first call replaces this with a constructor written for the class, then starts again.
        cls = type(self)
        cls.__init__ = _constructor(cls.FIELDS)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    @classmethod
    def default_instance(cls) -> Self:
        """Returns the one shared instance with nothing set, which compiled codecs recognise by identity."""
        instance = cls.__dict__.get("_default")
        if instance is None:
            instance = cls()
            cls._default = instance  # type: ignore[attr-defined]
        return cast(Self, instance)

    @classmethod
    def of_values(cls, values: Mapping[str, object]) -> Self:
        """Returns an instance with fields that are chosen by their names at run time; the others have their defaults."""
        return cls(**values)

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        values = {field.name: getattr(self, field.name) for field in self.FIELDS}
        return type(self)(**(values | changes))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._values(self) == self._values(other))

    def __repr__(self) -> str:
        """Returns the fields that differ from the defaults; only the size of bytes and records: they may be huge, or secret."""
        shown = (
            f"{field.name}={_brief(value)}"
            for field in self.FIELDS
            if (value := getattr(self, field.name)) != ([] if field.default is FRESH_LIST else field.default)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A whole request, response or other versioned document."""

    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[VersionRange] = NO_VERSIONS
    FLEXIBLE: ClassVar[VersionRange] = NO_VERSIONS

    def __init_subclass__(cls, *, versions: str, flexible: str, api: int | None = None) -> None:
        cls.API_KEY = api
        cls.VERSIONS = parse_versions(versions)
        cls.FLEXIBLE = parse_versions(flexible)
        cls._encoders = {}
        cls._decoders = {}
        cls._stepped_encoders = {}
        cls._stepped_decoders = {}

    _encoders: ClassVar[dict[int, Any]] = {}
    """Version -> compiled encoder, filled by `compiled.py`; likewise `_decoders`."""
    _decoders: ClassVar[dict[int, Any]] = {}
    _stepped_encoders: ClassVar[dict[int, Any]] = {}
    """The same for large messages: generators that yield every few elements."""
    _stepped_decoders: ClassVar[dict[int, Any]] = {}


def _brief(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return repr(value)


def _constructor(fields: Iterable[Field]) -> Any:
    """Compiles `__init__(self, *, a=..., b=...)` for a class's fields."""
    scope: dict[str, object] = {"FRESH_LIST": FRESH_LIST}
    parameters, body = [], []
    for field in fields:
        name = field.name
        scope[f"default_{name}"] = field.default
        parameters.append(f"{name}=default_{name}")
        value = f"[] if {name} is FRESH_LIST else {name}" if field.default is FRESH_LIST else name
        body.append(f"    self.{name} = {value}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + "\n".join(body or ["    pass"])
    exec(source, scope)  # the names come from our own declarations
    return scope["__init__"]
