"""Help of groups: the summary of each command in full, wrapped at words."""

from __future__ import annotations

from collections.abc import Iterable

import click

_UNCUT = 10_000


class Group(click.Group):
    """A group of commands whose summaries are not cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        write_summaries(formatter, [(name, each) for name, each in found if each is not None and not each.hidden])


def write_summaries(formatter: click.HelpFormatter, commands: Iterable[tuple[str, click.Command]]) -> None:
    with formatter.section("Commands"):
        formatter.write_dl([(name, each.get_short_help_str(_UNCUT)) for name, each in commands])
