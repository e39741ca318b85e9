"""`tm simulate`: a trace is replayed; `openb` fills a cluster up."""

import click

from trainmaster.cli.simulate.openb import openb
from trainmaster.cli.simulate.replay import simulate


class _Forms(click.Group):
    """What is no form's name is a trace."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`tm simulate FILE` is `tm simulate trace FILE`."""
        known = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if known else ["trace", *args])


@click.group(cls=_Forms)
def simulations() -> None:
    """A cluster trace through the production decisions.

    \b
    tm simulate trace3.csv.gz --compare fifo,easy      the same as: tm simulate trace trace3.csv.gz …
    tm simulate openb --nodes nodes.csv --pods pods.csv
    """


simulations.add_command(simulate, "trace")
simulations.add_command(openb, "openb")
