"""The error tree: every error that is reported to a person or a program.

Each class fixes a stable `code`, the HTTP status, the command line's exit code, and whether a retry can help. An instance
adds the message (what, and of which object) and the hint (what to do). A failed *training* is not an error but a value
(`trainmaster.model.job.Failure`). Documentation is generated from this tree.
"""

from typing import Any, ClassVar


class TrainmasterError(Exception):
    """Base of every error that is reported to a person."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, hint: str = "", details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details or []  # one entry per fault, e.g. per faulty field of a spec
        self.request_id = ""  # the request's id in the server's log, if the server sent one

    def as_dict(self) -> dict[str, Any]:
        """The body of REST and `--json` answers: `{"error": {code, message, hint, details}}`."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}}


class UsageError(TrainmasterError):
    """The request is invalid: a flag, an argument or a combination of them."""

    code, http_status, exit_code = "usage", 400, 2


class SpecError(TrainmasterError):
    """A spec is not valid; `details` lists every fault with file, line, column, field, expected and nearest."""

    code, http_status, exit_code = "spec", 422, 2


class ImpossibleError(TrainmasterError):
    """No node that this server knows of can ever satisfy the request."""

    code, http_status, exit_code = "impossible", 422, 6


class TooLargeError(TrainmasterError):
    """Something to be copied or stored exceeds its limit."""

    code, http_status, exit_code = "too_large", 413, 1


class NotFoundError(TrainmasterError):
    """The job, node, file or artifact does not exist."""

    code, http_status, exit_code = "not_found", 404, 3


class AuthenticationError(TrainmasterError):
    """The token is missing or unknown to the server."""

    code, http_status, exit_code = "authentication", 401, 4


class PermissionDeniedError(TrainmasterError):
    """The token is known, but its role, or `cluster.yaml`, does not allow this."""

    code, http_status, exit_code = "permission", 403, 4


class ConflictError(TrainmasterError):
    """The state of the object does not allow this."""

    code, http_status, exit_code = "conflict", 409, 5


class StaleAttemptError(TrainmasterError):
    """The number of the attempt in the request is not the live one; the writer must stop."""

    code, http_status, exit_code = "stale_attempt", 410, 5


class DiskFullError(TrainmasterError):
    """The server's disk is full: nothing was accepted, and nothing that was accepted before is lost."""

    code, http_status, exit_code, retryable = "disk_full", 507, 1, True


class StoreUnavailableError(TrainmasterError):
    """The object store does not answer or throttles requests: the operation can be retried later."""

    code, http_status, exit_code, retryable = "store_unavailable", 503, 1, True


class StoreRefusedError(TrainmasterError):
    """The object store rejects the request permanently: credentials, bucket or policy are wrong."""

    code, http_status, exit_code = "store_refused", 502, 1


class BusyError(TrainmasterError):
    """The server is processing its maximum of large requests; nothing of this request was done."""

    code, http_status, exit_code, retryable = "busy", 503, 7, True


class UnreachableError(TrainmasterError):
    """No server answers."""

    code, http_status, exit_code, retryable = "unreachable", 503, 7, True


class NotKnownError(UnreachableError):
    """The server did not answer, and may have done what was requested. A retry with the same key does nothing twice."""

    code, http_status, exit_code, retryable = "not_known", 504, 9, True


class WaitTimeoutError(TrainmasterError):
    """`tm wait --timeout` expired before the job ended; the job continues."""

    code, http_status, exit_code, retryable = "wait_timeout", 408, 8, True


class OperationError(TrainmasterError):
    """The operation was understood and failed; the message says why."""

    code, http_status, exit_code = "operation", 500, 1


class ChangedError(OperationError):
    """A file was changed while it was read; a retry may succeed."""

    code = "changed"


class DamagedError(OperationError):
    """A file of the server is damaged and cannot be read."""

    code = "damaged"


JOB_FAILED_EXIT = 10  # of `run` and `wait` if the *job* failed
INTERRUPTED_EXIT = 130  # Ctrl-C: the command detaches, the job continues
