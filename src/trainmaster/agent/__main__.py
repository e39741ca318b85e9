"""Entry point: `python -m trainmaster.agent DIRECTORY`, and the start of the single-file agent."""

import os
import sys

from trainmaster.agent.main import run


def main() -> None:
    """Run the agent of the directory in the first argument. Ends the process without the interpreter's shutdown."""
    code = 1
    try:
        code = run(sys.argv[1])
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
