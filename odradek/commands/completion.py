"""Completion of names from the cluster, and the scripts of `odradek completion`.

A completion that fails completes nothing: the shell must not print an error in the middle of a line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.commands.session import ConnectionOptions, F, open_client

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient

TIMEOUT_S: Final = 2.0
SHELLS: Final = ("bash", "zsh", "fish")
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics whose names begin with the word."""
    return _complete(context, incomplete, _topics)


def topics_option(*, required: bool = False) -> Callable[[F], F]:
    """The option --topic of commands that change committed offsets: topics, or partitions of them."""
    return click.option(
        "--topic",
        "topics",
        multiple=True,
        required=required,
        metavar="TOPIC[:PARTITION,...]",
        shell_complete=complete_topics,
        help="Whose offsets. Can be given again.",
    )


def complete_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The groups whose ids begin with the word."""
    return _complete(context, incomplete, _groups)


def complete_brokers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of brokers that begin with the word."""
    return _complete(context, incomplete, lambda client: [str(each) for each in client.broker_ids()])


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The profiles of the configuration file whose names begin with the word."""
    from odradek.commands.profiles import ProfileError, config_path, read_profiles

    try:
        return [name for name in read_profiles(config_path()).profiles if name.startswith(incomplete)]
    except ProfileError:
        return []


def _topics(client: AdminClient) -> list[str]:
    from odradek.admin.topics import list_topics

    return [topic.name for topic in list_topics(client)]


def _groups(client: AdminClient) -> list[str]:
    from odradek.admin.groups import list_groups

    return [group.group_id for group in list_groups(client).groups]


def _complete(context: click.Context, incomplete: str, names: Callable[[AdminClient], list[str]]) -> list[str]:
    given = context.params
    config = given.get("command_config")
    options = ConnectionOptions(
        given.get("bootstrap_server"), given.get("profile"), None if config is None else Path(config), TIMEOUT_S
    )
    try:
        with open_client(options) as client:
            return [name for name in names(client) if name.startswith(incomplete)]
    except Exception:
        return []


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(odradek completion bash)"          in ~/.bashrc
    zsh:   eval "$(odradek completion zsh)"           in ~/.zshrc
    fish:  odradek completion fish | source           in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(click.get_current_context().find_root().command, {}, "odradek", "_ODRADEK_COMPLETE").source())
