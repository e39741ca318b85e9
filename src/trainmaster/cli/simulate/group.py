"""`tm simulate`: `trace` replays a trace; `openb` fills a cluster."""

import click

from trainmaster.cli.simulate.openb import openb
from trainmaster.cli.simulate.replay import simulate


class _SimulateGroup(click.Group):
    """A group in which an unknown subcommand is the name of a trace."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`tm simulate FILE` is `tm simulate trace FILE`."""
        known = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if known else ["trace", *args])


@click.group(cls=_SimulateGroup)
def simulations() -> None:
    """Replay a cluster trace through the real scheduler.

    \b
    tm simulate trace3.csv.gz --compare fifo,easy      the same as: tm simulate trace trace3.csv.gz …
    tm simulate openb --nodes nodes.csv --pods pods.csv
    """


simulations.add_command(simulate, "trace")
simulations.add_command(openb, "openb")
