"""Types of request parameters, and the bounds of every text and number in a request. Larger values are rejected."""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import Field, StringConstraints

from trainmaster.wire.names import METRIC_NAME_MAX

NUMBER_MAX = 2**63 - 1  # the largest integer in SQLite
TEXT_MAX = 200  # characters of a name
LONG_MAX = 4096  # characters of a reason or another free text in a body
JOBS_MAX = 10_000  # jobs of a batch
REFS_MAX = 10_000  # jobs in one cancel request
COMMAND_MAX = 10_000  # words of a command beside a job
ENTRIES_MAX = 1000  # data sets of a job
STATES_MAX = 20
RANKS_MAX = 1000  # ranks whose logs are asked for
TAGS_MAX = 20  # tags that a job must have to be listed
KINDS_MAX = 20
REMOVED_MAX = 1000  # jobs whose bytes one request removes
INPUT_MAX = 2 * 1024 * 1024  # base64 characters of command input per request
SIDE_MAX = 10_000  # rows or columns of a terminal
GRACE_MAX_S = 86400.0
GRACE_AGE_MAX_S = 1e9  # largest minimum age for garbage collection
NAMES_MAX = 1000  # metrics, or jobs, named by one request
PATH_MAX = 4096  # characters of a file's path
CURSOR_MAX = 60_000  # characters of a cursor; the HTTP server rejects longer lines
TIME_LIMIT_MAX_S = 3650 * 86400.0  # of a job
TIME_MAX_S = 253402300799.0  # the end of the year 9999

Number = Annotated[int, Query(ge=0, le=NUMBER_MAX)]
Wait = Annotated[float, Query(ge=0, le=30, description="seconds to hold the answer until there is something new")]
Entries = Annotated[list[dict[str, Any]], Field(max_length=ENTRIES_MAX)]
Key = Annotated[str, StringConstraints(max_length=TEXT_MAX)]
LongText = Annotated[str, StringConstraints(max_length=LONG_MAX)]
Metric = Annotated[str, StringConstraints(max_length=METRIC_NAME_MAX)]
Text = Annotated[str | None, Query(max_length=TEXT_MAX)]
Ref = Annotated[str, Path(description="an id, a unique prefix of one, a job's name, `@last` or `@last-failed`", max_length=200)]
