"""`orbitlog completion`: the script that teaches a shell to complete commands, options, topics and groups."""

from __future__ import annotations

import click

from orbitlog.cli.main import cli

_HOW = {
    "bash": 'eval "$(orbitlog completion bash)"',
    "zsh": 'eval "$(orbitlog completion zsh)"',
    "fish": "orbitlog completion fish | source",
}


@click.command(
    "completion",
    help="""Print the completion script of a shell, to be put into its start file.

    For bash and zsh: eval "$(orbitlog completion bash)"; for fish: orbitlog completion fish | source. Names of topics
    and groups come from the cluster, are waited for a second at most, and kept for half a minute.""",
)
@click.argument("shell", type=click.Choice(list(_HOW)))
def command(*, shell: str) -> None:
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    # `source` would first start the shell to ask for its version; the script says itself what it needs.
    completion = made(cli, {}, "orbitlog", "_ORBITLOG_COMPLETE")
    click.echo(f"# {_HOW[shell]}\n{completion.source_template % completion.source_vars()}")
