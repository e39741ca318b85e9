"""The entry point of `tm`: prints the version without imports; everything else runs `trainmaster.cli.app`."""

import sys
from importlib import import_module

from trainmaster import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"trainmaster {__version__}\n")
        return
    sys.exit(import_module("trainmaster.cli.app").run(arguments))  # imported here because --version does not need it


if __name__ == "__main__":
    main()
