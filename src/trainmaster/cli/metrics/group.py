"""`tm metrics`: a group of two commands, of which `export` need not be named."""

import click

from trainmaster.cli.metrics.export import export
from trainmaster.cli.metrics.try_file import try_file


class _MetricsGroup(click.Group):
    """A group in which an unknown subcommand is a job."""

    otherwise = "export"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`tm metrics JOB` is `tm metrics export JOB`."""
        known = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if known else [self.otherwise, *args])


@click.group(cls=_MetricsGroup)
def metrics() -> None:
    """Show or export the metrics of jobs, or try what is read from a log.

    \b
    tm metrics digits-1 digits-2            a summary; the same as: tm metrics export digits-1 digits-2
    tm metrics digits-1 --csv > loss.csv    all points
    tm metrics try train.log                what would be read from a program's output
    """


metrics.add_command(export)
metrics.add_command(try_file)
