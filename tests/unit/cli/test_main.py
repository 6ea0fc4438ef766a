from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from odradek.cli.main import COMMANDS, cli, main

Run = tuple[int, str, str]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Run:
    try:
        code = main(words)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("words", [[], ["topic"], ["config"]])
def test_a_command_without_words_shows_its_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: odradek")
    assert "Commands:" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_as_the_list_says(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "Usage: odradek " + command in out
    loaded = cli.get_command(None, command)  # type: ignore[arg-type]
    assert loaded is not None
    assert loaded.name == command


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nonsense"], "odradek: No such command 'nonsense'. (see odradek --help)\n"),
        (["serve", "--zzz"], "odradek: No such option '--zzz'. (see odradek serve --help)\n"),
        (["topic", "create"], "odradek: Missing argument 'NAME'. (see odradek topic create --help)\n"),
        (
            ["config", "set", "novalue", "--topic", "t"],
            "expected KEY=VALUE (see odradek config set --help)\n",
        ),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.endswith(line)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["serve", "--set", "num.partitions=x"], "odradek: num.partitions='x' is not allowed: expected"),
        (["serve", "--set", "novalue"], "odradek: 'novalue' is not a setting: expected KEY=VALUE"),
        (["serve", "--listen", "nowhere"], "odradek: 'nowhere' is not an address: expected HOST:PORT"),
        (["serve", "/no/such/file"], "odradek: /no/such/file cannot be read: No such file or directory"),
        (["config", "describe", "retentoin.ms"], "did you mean retention.ms?"),
        (["produce", "t", "/no/such/file"], "odradek: /no/such/file: No such file or directory"),
        (["produce", "t", "--timestamp", "soon"], "is no time"),
        (["consume", "t", "--from", "somewhere"], "is no place to start"),
        (["consume", "t", "--template", "{colour}"], "{colour} is no field"),
    ],
)
def test_an_error_is_one_line_and_exit_code_one(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert line in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["topic", "list"], ["produce", "t", "/dev/null"], ["consume", "t"], ["cluster", "describe"]]
)
def test_a_broker_that_is_not_there_is_reported_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        code, out, err = run(capsys, *words, "--bootstrap", address)
    assert (code, out) == (1, "")
    assert err == (
        f"odradek: cannot connect to {address}: connection refused, nothing listens there: start a broker with "
        "`odradek serve`, or name another with --bootstrap\n"
    )


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="cannot be read"):
        main(["config", "show", "/no/such/file", "--debug"])
    monkeypatch.setenv("ODRADEK_DEBUG", "1")
    with pytest.raises(Exception, match="cannot be read"):
        main(["config", "show", "/no/such/file"])


def test_a_bug_of_ours_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by\nzero")

    monkeypatch.setattr("odradek.cli.main.run", fail)
    assert run(capsys, "doctor") == (
        1,
        "",
        "odradek: unexpected ZeroDivisionError: division by zero (--debug shows where)\n",
    )


def test_serving_does_not_wait_for_what_only_other_commands_need() -> None:
    program = (
        "import sys; import odradek.cli.main, odradek.cli.serving.serve, odradek.broker.process; "
        "print(*sorted({'rich', 'pyarrow', 'pyspark', 'odradek.client'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "completion", shell)
    assert code == 0
    assert "_ODRADEK_COMPLETE" in out


def test_a_pipe_that_closes_early_is_no_error() -> None:
    program = "import sys; from odradek.cli.main import main; sys.exit(main(['config', 'describe']))"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert error == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_stream_that_was_closed_before_the_start_is_no_error(closed: str) -> None:
    command = f"exec {sys.executable} -m odradek.cli.main config describe {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) is (closed != ">&-")
