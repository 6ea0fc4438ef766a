"""Input by hand when a pipeline is made or upgraded: its settings, and the note that this user approved them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from odradek.cli.output import remark
from odradek.config.files.properties import parse_properties
from odradek.config.files.secret_files import check_private
from odradek.model.errors import ConfigError
from odradek.pipelines.admission import Approval, Approvals
from odradek.pipelines.document import PipelineDocument, is_secret


def spark_settings(words: Sequence[str], properties_file: str | None) -> tuple[tuple[str, str], ...]:
    """Returns the settings of `--properties-file` and of `--conf`; the latter take precedence. Raises
    ConfigError."""
    settings = {} if properties_file is None else _settings_in(properties_file)
    return tuple({**settings, **dict(map(_setting, words))}.items())


def _settings_in(file: str) -> dict[str, str]:
    try:
        settings = parse_properties(Path(file).read_text("utf-8")).values
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"--properties-file {file} cannot be read: {error}") from None
    strange = [key for key in settings if not key.startswith("spark.")]
    if strange:
        raise ConfigError(
            f"--properties-file {file}: {strange[0]} is no setting of Spark: its settings begin with spark."
        )
    if any(is_secret(key, value) for key, value in settings.items()):
        check_private(f"--properties-file {file}", file)
    return settings


def _setting(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.startswith("spark."):
        raise ConfigError(
            f"--conf {key if sign else text}: expected a setting of Spark, such as spark.executor.memory=2g"
        )
    return key, value


def approve_by_hand(document: PipelineDocument) -> None:
    """Let a supervisor of this user, on this machine, run what the document asks for."""
    version = document.current
    _approve(
        [
            Approval.of_program(version.program, version.args),
            Approval.of_checkpoint(version.checkpoint),
            *(Approval.of_setting(key, value) for key, value in document.conf),
            *(() if document.master is None else (Approval.of_master(document.master),)),
        ]
    )


def approve_program(file: str, args: Sequence[str]) -> None:
    """Notes the user's approval of another program of a pipeline; its other parts stay as its document has
    them."""
    _approve([Approval.of_program(file, args)])


def check_approved(name: str, file: str, args: Sequence[str]) -> None:
    """Raises ConfigError unless this user has run the program: a document must not choose what a command loads."""
    if Approval.of_program(file, args).digest not in Approvals().digests():
        raise ConfigError(
            f"the document of pipeline {name} names {file}, which you did not run with these arguments on this machine:"
            f" look at it, and give it: `odradek pipeline upgrade {name} {file}`"
        )


def _approve(approvals: Iterable[Approval]) -> None:
    file = Approvals()
    try:
        file.add(approvals)
    except OSError as error:
        remark(
            f"{file.file} cannot be written ({error.strerror}): a supervisor needs --programs to run this pipeline"
        )
