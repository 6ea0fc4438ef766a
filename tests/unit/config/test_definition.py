from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.definition import Setting, SettingType, any_of, at_least, between, by_key, one_of
from odradek.model.errors import ConfigError


def setting(type_: SettingType, **other: object) -> Setting:
    return Setting(key="some.key", type=type_, default=None, meaning="", **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (SettingType.BOOLEAN, "true", True),
        (SettingType.BOOLEAN, " FALSE ", False),
        (SettingType.INT, "-2147483648", -(2**31)),
        (SettingType.INT, "+7", 7),
        (SettingType.LONG, "9223372036854775807", 2**63 - 1),
        (SettingType.SHORT, "32767", 32767),
        (SettingType.DOUBLE, "1e-3", 0.001),
        (SettingType.DOUBLE, ".5", 0.5),
        (SettingType.STRING, " some text ", "some text"),
        (SettingType.LIST, "a, b ,c", ("a", "b", "c")),
        (SettingType.LIST, "", ()),
        (SettingType.CLASS, "org.example.Thing", "org.example.Thing"),
    ],
)
def test_text_becomes_a_value_as_in_kafka(type_: SettingType, text: str, value: object) -> None:
    assert setting(type_).parse(text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (SettingType.BOOLEAN, "yes"),
        (SettingType.BOOLEAN, "1"),
        (SettingType.INT, "2147483648"),
        (SettingType.INT, "1_000"),
        (SettingType.INT, "1.0"),
        (SettingType.INT, "٣"),
        (SettingType.INT, ""),
        (SettingType.INT, "100MB"),
        (SettingType.LONG, "9223372036854775808"),
        (SettingType.LONG, "9" * 10_000),
        (SettingType.SHORT, "32768"),
        (SettingType.DOUBLE, "nan"),
        (SettingType.DOUBLE, "inf"),
        (SettingType.DOUBLE, "0,5"),
    ],
)
def test_a_mistake_names_the_key_the_value_and_what_is_expected(type_: SettingType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^some\.key=.* is not allowed: expected "):
        setting(type_).parse(text)


@pytest.mark.parametrize(
    ("bounded", "good", "bad", "words"),
    [
        (setting(SettingType.INT, valid=at_least(1)), "1", "0", "a whole number of 32 bits, 1 or more"),
        (setting(SettingType.INT, valid=between(1, 9)), "9", "10", "1 to 9"),
        (setting(SettingType.STRING, valid=one_of("gzip", "zstd")), "zstd", "zip", "one of gzip, zstd"),
        (
            setting(SettingType.LIST, valid=any_of("delete", "compact")),
            "compact,delete",
            "delete,x",
            "any of",
        ),
    ],
)
def test_bounds_are_checked_and_named_in_the_error(bounded: Setting, good: str, bad: str, words: str) -> None:
    bounded.parse(good)
    with pytest.raises(ConfigError, match=words):
        bounded.parse(bad)


def test_a_password_is_never_in_an_error() -> None:
    secret = setting(SettingType.PASSWORD, valid=one_of("other"))
    assert secret.sensitive
    with pytest.raises(ConfigError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive_being_written_and_read(number: int) -> None:
    long = setting(SettingType.LONG)
    text = long.text(number)
    assert text is not None
    assert long.parse(text) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_survive_being_written_and_read(number: float) -> None:
    double = setting(SettingType.DOUBLE)
    text = double.text(number)
    assert text is not None
    assert double.parse(text) == number


@given(st.text())
def test_no_text_does_more_than_raise_a_config_error(text: str) -> None:
    for type_ in SettingType:
        try:
            setting(type_).parse(text)
        except ConfigError:
            pass


def test_a_key_is_declared_once() -> None:
    with pytest.raises(AssertionError, match="declared twice"):
        by_key([setting(SettingType.INT), setting(SettingType.LONG)])
