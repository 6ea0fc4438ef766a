"""`odradek completion`: the script that a shell needs to complete commands, options and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from odradek.cli.output import say_lines
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from click import shell_completion

    from odradek.cli import main
else:
    shell_completion = lazy("click.shell_completion")
    main = lazy("odradek.cli.main")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: echo 'eval "$(odradek completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(odradek completion zsh)"' >> ~/.zshrc
    fish: odradek completion fish > ~/.config/fish/completions/odradek.fish
    """

    kind = shell_completion.get_completion_class(shell)
    assert kind is not None
    made = kind(main.cli, {}, "odradek", "_ODRADEK_COMPLETE")
    say_lines(made.source_template % made.source_vars())
