"""What is said of an answer that a command could not make sense of: whose server it is, and of which version."""

import traceback
from typing import Any

from trainmaster import __version__
from trainmaster.client.api import Client
from trainmaster.errors import OperationError, TrainmasterError

_WORDS_MAX = 100


def misread(client: Client, error: Exception) -> OperationError:
    """The server at `client.url` answered JSON of a shape that raised `error`. Asks it for its version."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__} in {frame.name}, {frame.filename.rpartition('/')[2]}:{frame.lineno}"
    version = _version(client)
    if version is None:
        whose, hint = "it is not Trainmaster's, or of another version", "check the URL and its port"
    elif version != __version__:
        whose, hint = f"it is of version {version}, tm of {__version__}", "use a tm of the server's version"
    else:
        whose, hint = f"it says it is of tm's own version, {version}", "check the URL; if it is yours, this is a defect of tm"
    message = f"the answer of the server at {client.url} has another shape than expected ({what}); {whose}"
    return OperationError(message, f"{hint}   the traceback: TRAINMASTER_DEBUG=1 tm …")


def _version(client: Client) -> str | None:
    """What `/healthz` tells; None where it tells none that can be read."""
    try:
        told: Any = client.healthz().get("version")
    except (TrainmasterError, OSError):
        return None
    finally:
        client.close()
    return told[:_WORDS_MAX] if isinstance(told, str) and told else None
