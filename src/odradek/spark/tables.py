"""Tables of Spark's catalog: `CREATE TABLE t USING odradek OPTIONS (…)`.

Spark passes a table's options when it is made, together with properties of its own, and never again: a later read of the
table gets its columns alone. So the options go with the columns, as the comment of the first one. `DESCRIBE t` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode

from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import OPTIONS, Use

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MARK: Final = "odradek: "
_PROVIDER: Final = "provider"
_OPTION_PREFIX: Final = "option."
_OF_THE_CATALOG: Final = frozenset(
    {_PROVIDER, "owner", "comment", "location", "external", "is_managed_location", "collation"}
)
_READABLE: Final = ' :/,*[]{}"$^.-|()'
_SECRET_WORDS: Final = ("password", "secret", "jaas", "token", "ssl.key")


def is_table(options: Mapping[str, str]) -> bool:
    """Tells whether the catalog asks, to make a table; `options` have names in lower case."""
    return options.get(_PROVIDER, "").lower() == "odradek"


def user_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the user's OPTIONS or TBLPROPERTIES, without those that the catalog adds."""
    return {
        key: value
        for key, value in options.items()
        if key not in _OF_THE_CATALOG and not key.startswith(_OPTION_PREFIX)
    }


def comment_of(options: Mapping[str, str]) -> str:
    """Returns the options of a table as the comment of a column. ConfigError for one that must not be seen there."""
    for key in options:
        if any(word in key.lower() for word in _SECRET_WORDS):
            raise ConfigError(
                f"option {key} would be readable in the catalog: leave it out of CREATE TABLE, and give it when the table is"
                f" read: SELECT … FROM t WITH ('{key}'='…')"
            )
    return _MARK + urlencode(sorted(options.items()), quote_via=quote, safe=_READABLE)


def stored_options(schema: StructType) -> dict[str, str]:
    """Returns the options that a table's columns bring along; none if this is no table."""
    for field in schema.fields[:1]:
        comment = (field.metadata or {}).get("comment", "")
        if comment.startswith(_MARK):
            return dict(parse_qsl(comment.removeprefix(_MARK), keep_blank_values=True))
    return {}


def read_from_table(own: Mapping[str, str], schema: StructType, use: Use) -> dict[str, str]:
    """Returns the options of a read: the table's, as far as they apply, and over them what was given to the read itself."""
    stored = {key: value for key, value in stored_options(schema).items() if OPTIONS.applies(key, use)}
    if not stored and not own:
        raise ConfigError(
            "the table has no options: make it as CREATE TABLE t USING odradek OPTIONS ('kafka.bootstrap.servers'='…',"
            " 'subscribe'='…'), without a list of columns"
        )
    return stored | dict(own)


def written_to_table(own: Mapping[str, str], schema: StructType, use: Use) -> dict[str, str]:
    """Returns the options of a write: a table that reads one topic writes to that topic."""
    stored = stored_options(schema)
    options = {key: value for key, value in stored.items() if OPTIONS.applies(key, use)} | dict(own)
    subscribed = stored.get("subscribe", "")
    if stored and "topic" not in options and subscribed and "," not in subscribed:
        options["topic"] = subscribed
    return options
