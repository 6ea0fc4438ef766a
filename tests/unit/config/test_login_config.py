"""Java's file of login modules, as KAFKA_OPTS and `java.security.auth.login.config` name it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.settings.settings import AdminSettings
from odradek.client.settings.settings_file import connection_settings, with_java_options
from odradek.config.jaas import LoginModule, login_module_in, parse_jaas
from odradek.model.errors import ConfigError

FILE = """\
// for all programs of this machine
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="zk" password="zk;}secret"; };
/* two lines
   KafkaClient { of a comment */
KafkaClient {
  org.apache.kafka.common.security.scram.ScramLoginModule required
  # the user
  username="ann"
  password="pass//word \\"};{";
};
"""
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="$"))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$-]{0,10}", fullmatch=True)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jaas.conf"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


def login(**settings: object) -> tuple[str, str, bool]:
    terms = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
    return AdminSettings.of("x:1", {**terms, **settings}).check_security().login


def test_a_client_logs_in_as_its_section_says(file: Path) -> None:
    assert login(java_security_auth_login_config=str(file)) == ("ann", 'pass//word "};{', False)
    own = 'M required username="bob" password="x";'
    assert login(java_security_auth_login_config=str(file), sasl_jaas_config=own)[0] == "bob"
    short = {"sasl_username": "eve", "sasl_password": "x"}
    assert login(java_security_auth_login_config=str(file), **short)[0] == "eve"


def test_kafka_s_own_environment_names_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g '-Djava.security.auth.login.config={file}' -Da=b")
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n")
    settings = connection_settings(str(config), "--command-config")
    assert settings["java.security.auth.login.config"] == str(file)
    arguments = AdminSettings.arguments({"bootstrap.servers": "x:1", **settings})
    assert AdminSettings.of(arguments.pop("bootstrap_servers"), arguments).check_security().login[0] == "ann"
    assert (
        with_java_options({"java.security.auth.login.config": "mine"})["java.security.auth.login.config"]
        == "mine"
    )
    assert with_java_options({}, {"KAFKA_OPTS": "-Dx='"}) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no section KafkaClient, but none"),
        ("KafkaServer { M required a=b; };", "it has no section KafkaClient, but KafkaServer"),
        ("KafkaClient { M required a=b; N required c=d; };", "it holds more than one login module"),
        ("KafkaClient { M required a=b };", "section KafkaClient: a semicolon is missing"),
        ("KafkaClient { M a=b; };", "section KafkaClient: expected a login module and `required`"),
        ("KafkaClient M required a=b; };", "expected sections, such as KafkaClient"),
        ("KafkaClient { M required a=b;", "expected sections, such as KafkaClient"),
        ('KafkaClient { M required password="s3cret; };', "is a quote missing?"),
        (
            'KafkaClient { M required password="s3cret${x}"; };',
            "option password of KafkaClient has a variable",
        ),
    ],
)
def test_what_is_wrong_is_named_and_no_value_shown(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        login(java_security_auth_login_config=str(path))
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"java.security.auth.login.config={str(path)!r}")
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_missing_or_that_all_users_can_read_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"java\.security\.auth\.login\.config=.* cannot be read: No such file"
    ):
        login(java_security_auth_login_config=str(tmp_path / "none"))
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="every user of this machine can read it"):
        login(java_security_auth_login_config=str(file))
    with pytest.raises(ConfigError, match=r"or java\.security\.auth\.login\.config"):
        login()


@given(
    NAMES, st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from(["", "// x {\n", "/* } ; */", "# x\n"])
)
def test_a_section_means_what_the_same_string_means(
    module: str, options: dict[str, str], comment: str
) -> None:
    body = f"{module} required {' '.join(f'{name}={quoted(value)}' for name, value in options.items())};"
    text = f"Other {{ X required a=b; }};{comment}KafkaClient {{{comment}\n{body}{comment}\n}};{comment}"
    assert (
        login_module_in(text, "KafkaClient", "f")
        == parse_jaas(body)
        == LoginModule(name=module, options=options)
    )


@given(st.text(st.sampled_from("KafkaClient{}=;\"'\\ /*#\nab") | st.characters()))
def test_any_text_is_a_module_or_refused_in_one_line(text: str) -> None:
    refusals: list[str] = []
    try:
        login_module_in(text, "KafkaClient", "f")
    except ConfigError as error:
        refusals.append(str(error))
    assert all(refusal.startswith("f: ") for refusal in refusals)
