"""Builds the error for a server answer of unexpected shape: is the server of another version, or not ours?"""

import traceback
from typing import Any

from trainmaster import __version__
from trainmaster.client.api import Client
from trainmaster.errors import OperationError, TrainmasterError

_WORDS_MAX = 100


def misread(client: Client, error: Exception) -> OperationError:
    """The error for an answer of the server at `client.url` that raised `error`. Asks the server for its version."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__} in {frame.name}, {frame.filename.rpartition('/')[2]}:{frame.lineno}"
    version = _version(client)
    if version is None:
        cause, hint = "it is not a Trainmaster server, or has another version", "check the URL and its port"
    elif version != __version__:
        cause, hint = f"it has version {version}, tm has {__version__}", "use a tm of the server's version"
    else:
        cause, hint = f"it has the same version as tm, {version}", "check the URL; if it is yours, this is a bug in tm"
    message = f"the answer of the server at {client.url} has an unexpected shape ({what}); {cause}"
    return OperationError(message, f"{hint}   the traceback: TRAINMASTER_DEBUG=1 tm …")


def _version(client: Client) -> str | None:
    """The version in `/healthz`; None if there is none."""
    try:
        told: Any = client.healthz().get("version")
    except (TrainmasterError, OSError):
        return None
    finally:
        client.close()
    return told[:_WORDS_MAX] if isinstance(told, str) and told else None
