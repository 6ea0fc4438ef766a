"""Values that stand elsewhere: in files, directories, the environment (KIP-297)."""

from pathlib import Path

import pytest

from odradek.client.settings.settings import AdminSettings
from odradek.config.files.providers import resolved
from odradek.config.loading import load_broker_config, reconfigured
from odradek.model.errors import ConfigError

JAVAS = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "file,dir, env",
    "config.providers.file.class": JAVAS + "FileConfigProvider",
    "config.providers.dir.class": JAVAS + "DirectoryConfigProvider",
    "config.providers.env.class": JAVAS + "EnvVarConfigProvider",
}


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    return private(tmp_path / "secrets.properties", "password=pa:ss\nempty=\nvariable=${env:HOME}\n")


def test_values_come_from_each_provider_and_stay_what_they_are(secrets: Path) -> None:
    (secrets.parent / "token").write_text("from a directory")
    (secrets.parent / "token").chmod(0o600)
    values = {
        **PROVIDERS,
        "a": f"x${{file:{secrets}:password}}y",
        "b": f"${{dir:{secrets.parent}:token}}",
        "c": "${env:SECRET}${env:SECRET}",
        "d": f"${{file:{secrets}:variable}}",
        "e": "${other:x} $5 ${}",
        "f": f"${{file:{secrets}:empty}}",
    }
    settings = resolved(values, {"SECRET": "s"})
    assert {key: settings[key] for key in "abcdef"} == {
        "a": "xpa:ssy",
        "b": "from a directory",
        "c": "ss",
        "d": "${env:HOME}",
        "e": "${other:x} $5 ${}",
        "f": "",
    }
    assert resolved({"a": "${env:SECRET}"}, {"SECRET": "s"}) == {"a": "${env:SECRET}"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${file:/nowhere:key}", r"key: file='/nowhere' cannot be read: No such file"),
        ("${file:SECRETS:absent}", r"key: .* has no value for absent"),
        ("${file:absent}", "names no path"),
        ("${dir:PLACE:../x}", "no name of a file"),
        ("${env:ABSENT}", "key: there is no variable ABSENT"),
        ("${env:path:ABSENT}", "the environment has no paths"),
    ],
)
def test_what_is_not_found_is_an_error_that_names_the_setting(secrets: Path, text: str, words: str) -> None:
    text = text.replace("SECRETS", str(secrets)).replace("PLACE", str(secrets.parent))
    with pytest.raises(ConfigError, match=words):
        resolved({**PROVIDERS, "key": text}, {})


def test_providers_can_be_held_to_paths_and_names(secrets: Path, tmp_path: Path) -> None:
    held = {
        **PROVIDERS,
        "config.providers.file.param.allowed.paths": f"{tmp_path}/elsewhere,/etc",
        "config.providers.env.param.allowlist.pattern": "KAFKA_.*",
    }
    (tmp_path / "elsewhere").mkdir()
    for path in (str(secrets), f"{tmp_path}/elsewhere/../{secrets.name}"):
        with pytest.raises(ConfigError, match=r"is not in config.providers.file.param.allowed.paths"):
            resolved({**held, "key": f"${{file:{path}:password}}"})
    (tmp_path / "elsewhere" / "link").symlink_to(secrets)
    with pytest.raises(ConfigError, match="is not in"):
        resolved({**held, "key": f"${{file:{tmp_path}/elsewhere/link:password}}"})
    with pytest.raises(ConfigError, match="variable HOME is not allowed"):
        resolved({**held, "key": "${env:HOME}"}, {"HOME": "h"})
    assert resolved({**held, "key": "${env:KAFKA_A}"}, {"KAFKA_A": "a"})["key"] == "a"


def test_a_file_of_secrets_that_all_can_read_is_refused(secrets: Path) -> None:
    secrets.chmod(0o644)
    values = {**PROVIDERS, "key": f"${{file:{secrets}:password}}"}
    with pytest.raises(ConfigError, match=r"key: .* every user of this machine can read it"):
        resolved(values)
    assert resolved({**values, "odradek.secret.files.readable.by.others": "true"})["key"] == "pa:ss"


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"config.providers.v.class=com.Vault is not allowed"):
        resolved({"config.providers": "v", "config.providers.v.class": "com.Vault"})


def test_a_broker_and_a_client_take_them(secrets: Path) -> None:
    variable = f"${{file:{secrets}:password}}"
    config, warnings = load_broker_config({**PROVIDERS, "delegation.token.secret.key": variable})
    assert config.delegation.secret_key == "pa:ss"
    assert warnings == []
    with pytest.raises(ConfigError, match="dynamic settings are not looked up"):
        reconfigured(config, {"num.io.threads": "${env:HOME}"})
    assert reconfigured(config, {"num.io.threads": "9"}).delegation.secret_key == "pa:ss"
    arguments = AdminSettings.arguments(
        {**PROVIDERS, "bootstrap.servers": "b:1", "sasl.password": variable, "retry.backoff.ms": 5}
    )
    assert arguments == {"bootstrap_servers": "b:1", "sasl_password": "pa:ss", "retry_backoff_ms": 5}
