"""Tables of settings: a class for each group of them, a row for each setting.

    @section("group.consumer.")
    class ConsumerGroupConfig(Section):
        session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning="How long ...")

declares `group.consumer.session.timeout.ms`. The row is the only place: the field's type for mypy, the type and the default
that DescribeConfigs tells, the documentation, and whether a running broker takes a new value all come from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast, dataclass_transform

from odradek.config.definition import Bounds, DynamicUpdate, Importance, Scope, Setting, SettingType

# A row's type in Kafka, in addition to its Python type.
Boolean: TypeAlias = bool
Double: TypeAlias = float
Int: TypeAlias = int
List: TypeAlias = tuple[str, ...]
Long: TypeAlias = int
Password: TypeAlias = str
Short: TypeAlias = int
String: TypeAlias = str

HIGH, LOW = Importance.HIGH, Importance.LOW
CLUSTER_WIDE, PER_BROKER = DynamicUpdate.CLUSTER_WIDE, DynamicUpdate.PER_BROKER
LIST, STRING = SettingType.LIST, SettingType.STRING

_TYPES: Final = {
    type_.name.title(): type_
    for type_ in SettingType
    if type_ not in (SettingType.UNKNOWN, SettingType.CLASS)
}
_FIRST_WORD: Final = re.compile(r"\w+")
_ROW: Final = "row"
Path = tuple[str, ...]
"""The path of a setting's value: the names of sections, then of a field."""
S = TypeVar("S", bound="Section")


def setting(
    key: str = "",
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    meaning: str,
    valid: Bounds | None = None,
    importance: Importance = Importance.MEDIUM,
    dynamic: DynamicUpdate = DynamicUpdate.READ_ONLY,
    as_started: bool = False,
    synonyms: tuple[str, ...] = (),
    broker: str = "",
    effective: bool = True,
    internal: bool = False,
    type_: SettingType | None = None,
    written_default: Any = MISSING,
) -> Any:
    """Declares a row. The arguments are the fields of `Setting`.

    `key` is needed where it is not the section's prefix and the field's name, with a dot for each `_`.
    `type_` is needed where the field's type is none of those above: its value is made by `loading.py`.
    `written_default`: the setting's default, where the field's default is something else.
    `broker`: for a topic's setting, the broker's keys that give its default, the strongest first.
    """
    row = {
        "key": key,
        "type": type_,
        "default": default if written_default is MISSING else written_default,
        "meaning": meaning,
        "valid": valid,
        "importance": importance,
        "dynamic": dynamic,
        "as_started": as_started,
        "synonyms": synonyms or tuple(broker.split()),
        "effective": effective,
        "internal": internal,
    }
    return field(default=default, default_factory=default_factory, metadata={_ROW: row})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, field))
def section(prefix: str = "", *, scope: Scope = Scope.BROKER) -> Callable[[type[S]], type[S]]:
    """Makes a frozen, slotted dataclass of a class of rows."""

    def make(rows: type[S]) -> type[S]:
        made = dataclass(kw_only=True, slots=True, init=False, repr=False, eq=False)(rows)
        made.field_table = fields(made)
        made.defaults = tuple((row.name, row.default, row.default_factory) for row in made.field_table)
        made.settings = {
            row.name: _setting_of(row, prefix, scope) for row in made.field_table if _ROW in row.metadata
        }
        return made

    return make


def _setting_of(table_row: Field[Any], prefix: str, scope: Scope) -> Setting:
    row = table_row.metadata[_ROW]
    key = row["key"] or prefix + table_row.name.replace("_", ".")
    first_word = _FIRST_WORD.match(cast(str, table_row.type))  # the text of an annotation
    type_ = row["type"] or _TYPES[first_word[0] if first_word else ""]
    return Setting(**(row | {"key": key, "type": type_, "scope": scope}))


class Section:
    """A group of settings as a frozen object, with a field for each setting.

    Its methods are written here once: `dataclass` would compile a set of them for each section at every start."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    field_table: ClassVar[tuple[Field[Any], ...]]
    defaults: ClassVar[tuple[tuple[str, Any, Any], ...]]
    settings: ClassVar[dict[str, Setting]]
    """The settings that the section declares, by the field's name."""

    def __init__(self, **values: Any) -> None:
        put = object.__setattr__
        for name, default, factory in self.defaults:
            value = values.pop(name, default)
            if value is MISSING:
                if factory is MISSING:
                    raise TypeError(f"{type(self).__name__} needs {name}")
                value = factory()
            put(self, name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, row.name) == getattr(other, row.name) for row in self.field_table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Returns the settings and their values, without passwords."""
        shown = (
            f"{row.name}={getattr(self, row.name)!r}"
            for row in self.field_table
            if row.repr and not (row.name in self.settings and self.settings[row.name].sensitive)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def declared(root: type[Section]) -> Iterator[tuple[Path, Setting]]:
    """Yields every setting of a section and of the sections in it."""
    for row in root.field_table:
        name = row.name
        if name in root.settings:
            yield (name,), root.settings[name]
            continue
        inner: Any = row.default_factory
        if isinstance(inner, type) and issubclass(inner, Section):
            for path, below in declared(inner):
                yield (name, *path), below


def value_at(root: Section, path: Path) -> Any:
    value: Any = root
    for name in path:
        value = getattr(value, name)
    return value


def with_values(root: S, values: Mapping[Path, Any]) -> S:
    """Returns a copy that has these values, and shares the sections that keep theirs."""
    own = {path[0]: value for path, value in values.items() if len(path) == 1}
    below: dict[str, dict[Path, Any]] = {}
    for path, value in values.items():
        if len(path) > 1:
            below.setdefault(path[0], {})[path[1:]] = value
    changed = {name: with_values(getattr(root, name), inner) for name, inner in below.items()}
    return replace(root, **own, **changed)
