"""`orbitlog completion`: prints the script for shell completion of commands, options, topics and groups."""

from __future__ import annotations

import click

from orbitlog.cli.main import cli

_INSTALL_LINES = {
    "bash": 'eval "$(orbitlog completion bash)"',
    "zsh": 'eval "$(orbitlog completion zsh)"',
    "fish": "orbitlog completion fish | source",
}


@click.command(
    "completion",
    help="""Print the completion script of a shell, for its startup file.

    For bash and zsh: eval "$(orbitlog completion bash)"; for fish: orbitlog completion fish | source. Names of topics
    and groups come from the cluster: requests time out after 1 s, and names are cached for 30 s.""",
)
@click.argument("shell", type=click.Choice(list(_INSTALL_LINES)))
def command(*, shell: str) -> None:
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    # `source()` would start the shell to check its version; the script states its requirements itself.
    completion = completion_class(cli, {}, "orbitlog", "_ORBITLOG_COMPLETE")
    click.echo(f"# {_INSTALL_LINES[shell]}\n{completion.source_template % completion.source_vars()}")
