"""The entry point of `tm`: the version at once, everything else through `trainmaster.cli.app`."""

import sys
from importlib import import_module

from trainmaster import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"trainmaster {__version__}\n")
        return
    sys.exit(import_module("trainmaster.cli.app").run(arguments))  # loaded here: --version needs none of it


if __name__ == "__main__":
    main()
