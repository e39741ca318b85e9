"""The one error tree: what a person or a program is told when something cannot be done.

Each class fixes a stable `code`, the HTTP status, the command line's exit code and whether trying again can help.
An instance adds the message (what, and of which object) and the hint (what to do). A failed *training* is not an
error but a value (`trainmaster.model.job.Failure`). Documentation is generated from this tree.
"""

from typing import Any, ClassVar


class TrainmasterError(Exception):
    """Base of every error that is meant to be read by a person."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, hint: str = "", details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details or []  # one entry per fault, e.g. per faulty field of a spec
        self.request_id = ""  # what a server's log knows it by, where a server said it

    def as_dict(self) -> dict[str, Any]:
        """The body that REST and `--json` answer with: `{"error": {code, message, hint, details}}`."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}}


class UsageError(TrainmasterError):
    """The request itself makes no sense: a flag, an argument or a combination of them."""

    code, http_status, exit_code = "usage", 400, 2


class SpecError(TrainmasterError):
    """A spec is not valid; `details` lists every fault with file, line, column, field, expected and nearest."""

    code, http_status, exit_code = "spec", 422, 2


class ImpossibleError(TrainmasterError):
    """No node that this server knows of can ever satisfy the request."""

    code, http_status, exit_code = "impossible", 422, 6


class TooLargeError(TrainmasterError):
    """Something to be copied or stored is over its limit."""

    code, http_status, exit_code = "too_large", 413, 1


class NotFoundError(TrainmasterError):
    """There is no such job, node, file or artifact."""

    code, http_status, exit_code = "not_found", 404, 3


class AuthenticationError(TrainmasterError):
    """No token, or one the server does not know."""

    code, http_status, exit_code = "authentication", 401, 4


class PermissionDeniedError(TrainmasterError):
    """The token is known, and its role does not allow this."""

    code, http_status, exit_code = "permission", 403, 4


class ConflictError(TrainmasterError):
    """The object is in a state in which this cannot be done."""

    code, http_status, exit_code = "conflict", 409, 5


class StaleAttemptError(TrainmasterError):
    """A write carried the number of an attempt that is no longer the live one; the writer must stop."""

    code, http_status, exit_code = "stale_attempt", 410, 5


class DiskFullError(TrainmasterError):
    """The server's disk is full: nothing was accepted, nothing already accepted was lost."""

    code, http_status, exit_code, retryable = "disk_full", 507, 1, True


class StoreUnavailableError(TrainmasterError):
    """The object store does not answer, or asks to slow down: what was begun can be done later."""

    code, http_status, exit_code, retryable = "store_unavailable", 503, 1, True


class StoreRefusedError(TrainmasterError):
    """The object store refuses for good: its credentials, its bucket or its policy are wrong."""

    code, http_status, exit_code = "store_refused", 502, 1


class BusyError(TrainmasterError):
    """The server has as many large requests at hand as it takes; nothing of this one was done."""

    code, http_status, exit_code, retryable = "busy", 503, 7, True


class UnreachableError(TrainmasterError):
    """No server answers."""

    code, http_status, exit_code, retryable = "unreachable", 503, 7, True


class NotKnownError(UnreachableError):
    """The server did not answer, and may have done what was asked; asking again with the same key does nothing twice."""

    code, http_status, exit_code, retryable = "not_known", 504, 9, True


class WaitTimeoutError(TrainmasterError):
    """`tm wait --timeout` ran out before the job ended; the job lives on."""

    code, http_status, exit_code, retryable = "wait_timeout", 408, 8, True


class OperationError(TrainmasterError):
    """The operation was understood and failed; the message says why."""

    code, http_status, exit_code = "operation", 500, 1


class ChangedError(OperationError):
    """A file was changed between two looks at it; another try may find it at rest."""

    code = "changed"


class DamagedError(OperationError):
    """A file of the server is damaged: what is in it cannot be read."""

    code = "damaged"


JOB_FAILED_EXIT = 10  # `run` and `wait` when the *job* failed
INTERRUPTED_EXIT = 130  # Ctrl-C: the command detaches, the job lives on
