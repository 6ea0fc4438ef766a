"""`odradek completion`: the script that a shell needs to complete commands, options and topics."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: echo 'eval "$(odradek completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(odradek completion zsh)"' >> ~/.zshrc
    fish: odradek completion fish > ~/.config/fish/completions/odradek.fish
    """
    from click.shell_completion import get_completion_class

    from odradek.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(cli, {}, "odradek", "_ODRADEK_COMPLETE")
    click.echo(made.source_template % made.source_vars())
