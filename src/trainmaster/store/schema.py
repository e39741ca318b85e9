"""The tables of the four stores, one MetaData per file, and the revision they are at.

A change here needs a revision in `migrations/versions` that arrives at the same tables; a test compares the two.
Values live as canonical JSON in `data`; the columns beside it are what is searched or counted, and nothing else.
"""

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010")  # in order
HEAD = REVISIONS[-1]

EVENTS = MetaData()
INBOX = MetaData()
METRICS = MetaData()
MIRROR = MetaData()
STORES = {"events": EVENTS, "inbox": INBOX, "metrics": METRICS, "mirror": MIRROR}

SHRINKING = frozenset(("metrics",))  # stores from which much is deleted

VERSION_TABLE = "alembic_version"

# SQLite makes only the exact type INTEGER an alias of the row id; BIGINT would be a second index.
_Seq = BigInteger().with_variant(Integer(), "sqlite")

identity = {  # one row: the home that the file belongs to
    store: Table(
        "identity",
        tables,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("home", Text, nullable=False),
    )
    for store, tables in STORES.items()
    if store != "mirror"
}

event = Table(
    "event",
    EVENTS,
    Column("seq", _Seq, primary_key=True, autoincrement=False),
    Column("now_s", Float(53), nullable=False),
    Column("job", Text),
    Column("attempt", Integer),
    Column("type", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Index("event_of_job", "job", "seq"),
)

job = Table(
    "job",
    EVENTS,
    Column("seq", _Seq, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),  # last component of the id
    Column("project", Text, nullable=False),
    Column("experiment", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("live", Boolean, nullable=False),  # control has work left on it: not ended, or bytes to delete
    Column("data", Text, nullable=False),
    Index("job_id", "id", unique=True),
    Index("job_number", "experiment", "number"),
    Index("job_name", "name", "seq"),
    Index("job_live", "live", "seq"),
    Index("job_state", "state", "seq"),
    Index("job_project", "project", "state", "seq"),
    Index("job_experiment", "experiment", "state", "seq"),
)

label = Table(  # what jobs are found by besides the columns of `job` (`projections.labels_of`)
    "label",
    EVENTS,
    Column("name", Text, primary_key=True),  # "owner", or "tag:" and the name of a tag
    Column("value", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # of the job
    Index("label_of_job", "seq"),
    sqlite_with_rowid=False,
)

over = Table(  # the n-th job that ran and is over, in the order of the log
    "over",
    EVENTS,
    Column("number", _Seq, primary_key=True, autoincrement=False),
    Column("job", Text, nullable=False),
)

attempt = Table(
    "attempt",
    EVENTS,
    Column("job", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", Text, nullable=False),
    sqlite_with_rowid=False,
)

artifact = Table(  # the newest file of each path, from any attempt
    "artifact",
    EVENTS,
    Column("job", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    sqlite_with_rowid=False,
)

child = Table(  # a job that was made from another one
    "child",
    EVENTS,
    Column("job", Text, primary_key=True),
    Column("parent", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),  # of its submission's event
    Index("child_of_parent", "parent", "seq"),
    sqlite_with_rowid=False,
)

note = Table(
    "note",
    EVENTS,
    Column("seq", _Seq, primary_key=True, autoincrement=False),  # of its event
    Column("job", Text),  # null: about an experiment or a project
    Column("project", Text, nullable=False),
    Column("experiment", Text),  # null: about a project
    Column("data", Text, nullable=False),
    Index("note_of_job", "job", "seq"),
    Index("note_of_project", "project", "seq"),
    Index("note_of_experiment", "experiment", "seq"),
)

charge = Table(  # the ledger: what an attempt is charged for the nodes of one pool
    "charge",
    EVENTS,
    Column("job", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("member", Text, nullable=False),
    Column("work", Text, nullable=False),
    Column("experiment", Text, nullable=False),
    Column("gpu_milli", BigInteger, nullable=False),
    Column("cpu_milli", BigInteger, nullable=False),
    Column("price", Float(53), nullable=False),
    Column("currency", Text, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),  # the largest integer while it runs
    Column("lost_from_ms", BigInteger),
    Index("charge_until", "until_ms", "from_ms"),
    sqlite_with_rowid=False,
)

balance = Table(  # decayed service of each project's member, which fair share starts from
    "balance",
    EVENTS,
    Column("project", Text, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("service", Float(53), nullable=False),
    Column("at_s", Float(53), nullable=False),
    sqlite_with_rowid=False,
)

node = Table(
    "node",
    EVENTS,
    Column("name", Text, primary_key=True),
    Column("data", Text, nullable=False),
)

rules = Table(  # one row, once a configuration was applied
    "rules",
    EVENTS,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("data", Text, nullable=False),
)

head = Table(  # one row
    "head",
    EVENTS,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_now_s", Float(53), nullable=False),
    Column("last_hash", Text, nullable=False),
    Column("inbox_cursor", BigInteger, nullable=False),
)

inbox = Table(
    "inbox",
    INBOX,
    Column("seq", _Seq, primary_key=True, autoincrement=False),  # drawn from `counter`, so that it is never reused
    Column("key", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("report", Boolean, nullable=False),
    Column("data", Text, nullable=False),
    Column("received_s", Float(53), nullable=False),
    Index("inbox_key", "key", unique=True),
    Index("inbox_kind", "report", "seq"),
    Index("inbox_age", "received_s"),
)

answer = Table(  # the job of each key; kept for ever, about 60 bytes each, so that a repeated request creates no second job
    "answer",
    INBOX,
    Column("key", LargeBinary, primary_key=True, nullable=False),  # the first 16 bytes of its SHA-256
    Column("asked", LargeBinary),  # digest of the request, shortened likewise; null: from a version that did not store it
    Column("job", Text, nullable=False),
    sqlite_with_rowid=False,
)

counter = Table(
    "counter",
    INBOX,
    Column("name", Text, primary_key=True),  # an experiment, or "" for the rows of the inbox themselves
    Column("last", BigInteger, nullable=False),
)

token = Table(  # of a user; the token cannot be derived from its SHA-256
    "token",
    INBOX,
    Column("name", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("created_s", Float(53), nullable=False),
    Column("made_by", Text, nullable=False),
    Column("expires_s", Float(53)),  # null: never
)

series = Table(
    "series",
    METRICS,
    Column("id", _Seq, primary_key=True),
    Column("job", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Index("series_of_job", "job", "name", "rank", unique=True),
)

point = Table(
    "point",
    METRICS,
    Column("series", _Seq, primary_key=True, autoincrement=False),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("value", Float(53)),  # null is NaN, which SQLite cannot hold
    Column("time_s", Float(53), nullable=False),
    Column("seq", BigInteger, nullable=False),  # order of arrival over both tables; a replaced value keeps it
    Index("point_seq", "seq"),
    sqlite_with_rowid=False,
)

# No series has this id. Its row 0 has the number of the latest point, if no point of this file has it. The value of its row N
# is how many points of series N were removed to thin it.
MARK = 0

unstepped = Table(
    "unstepped",
    METRICS,
    Column("series", _Seq, primary_key=True, autoincrement=False),
    Column("n", BigInteger, primary_key=True, autoincrement=False),  # position within its series, from 0
    Column("attempt", Integer, nullable=False),
    Column("value", Float(53)),
    Column("time_s", Float(53), nullable=False),
    Column("seq", BigInteger, nullable=False),  # order of arrival over both tables; a replaced value keeps it
    Index("unstepped_seq", "seq"),
    sqlite_with_rowid=False,
)

latest = Table(
    "latest",
    METRICS,
    Column("job", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("rank", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger),
    Column("value", Float(53)),
    Column("time_s", Float(53), nullable=False),
    sqlite_with_rowid=False,
)

fence = Table(
    "fence",
    METRICS,
    Column("job", Text, primary_key=True),
    Column("attempt", Integer, nullable=False),
    sqlite_with_rowid=False,
)

heartbeat = Table(
    "heartbeat",
    METRICS,
    Column("key", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("time_s", Float(53), nullable=False),
    Column("step", BigInteger),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("cpu_s", Float(53), nullable=False),
    Column("at_s", Float(53), nullable=False, server_default="0"),
    Index("heartbeat_of_job", "job", "attempt"),
)

arrival = Table(  # last stored point of each agent, for the newest attempt of each job
    "arrival",
    METRICS,
    Column("job", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("node_index", Integer, primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),  # the highest number stored
    Column("origin_s", Float(53)),  # seconds since the epoch at the 0 of the agent's clock; null: not known yet
    sqlite_with_rowid=False,
)

cursor = Table(  # how far one tracker has followed
    "cursor",
    MIRROR,
    Column("sink", Text, primary_key=True),
    Column("events_seq", BigInteger, nullable=False),
    Column("points_seq", BigInteger, nullable=False),
    Column("choice", Text, nullable=False),  # fingerprint of the mirrored projects: a change triggers a full check
    Column("outbox", Text),  # the batch in transit; after a crash it is sent again unchanged
)

run = Table(  # one job in one tracker
    "run",
    MIRROR,
    Column("sink", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("ref", Text, nullable=False),  # the tracker's id of the run
    Column("url", Text, nullable=False),
    Column("told", Text),  # the state that the tracker was told
    Column("kept", Text, nullable=False),  # artifacts
    Column("mark", Text, nullable=False),
    Column("fill", Text, nullable=False),  # position of the backfill, and whether the run is finished
    Column("fault", Text),
    Column("unfinished", Boolean, nullable=False),
    Index("run_of_job", "job"),
    Index("run_unfinished", "sink", "unfinished"),
    sqlite_with_rowid=False,
)
