"""The tables of the archive, the same on SQLite and on PostgreSQL."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    desc,
    func,
    text,
)

HEAD = "0003"
"""The migration that makes these tables what they are here."""

IS_CONTROL = text("kind = 'control'")
IS_DIFF = text("type IN ('agent.file_edited', 'iteration.files_changed')")
IS_START = text("iteration IS NOT NULL")
IS_BEHIND = text("control_seq > folded_seq OR (origin = 'published' AND last_seq > folded_seq)")
"""Conditions of partial indexes. They are used word by word, without parameters: only so is the index found."""
DIFF_TYPES = frozenset({"agent.file_edited", "iteration.files_changed"})

metadata = MetaData()
_GROWING = BigInteger().with_variant(Integer(), "sqlite")  # the only type that counts by itself there

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("sandbox_id", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("heard_at", Double, nullable=False),
    Column("last_seq", BigInteger, nullable=False, server_default="0"),
    Column("control_seq", BigInteger, nullable=False, server_default="0"),
    Column("trimmed_seq", BigInteger, nullable=False, server_default="0"),
    Column("tenure", BigInteger, nullable=False, server_default="0"),
    Column("trace_chars", BigInteger, nullable=False, server_default="0"),
    Column("newest_order", BigInteger, nullable=False, server_default="0"),
    Column("driver_hash", Text, nullable=False, server_default=""),
    # What is derived from its events.
    Column("folded_seq", BigInteger, nullable=False, server_default="0"),
    Column("name", Text, nullable=False, server_default=""),
    Column("goal", Text, nullable=False, server_default=""),
    Column("folder", Text, nullable=False, server_default=""),
    Column("host", Text, nullable=False, server_default=""),
    Column("in_session", Boolean, nullable=False, server_default=text("false")),
    Column("status", Text, nullable=False, server_default="new"),
    Column("phase", Text, nullable=False, server_default=""),
    Column("why", Text, nullable=False, server_default=""),
    Column("success", Boolean, nullable=False, server_default=text("false")),
    Column("verified", Boolean, nullable=False, server_default=text("false")),
    Column("verdict", Text, nullable=False, server_default=""),
    Column("cost_usd", Double, nullable=False, server_default="0"),
    Column("estimated_usd", Double, nullable=False, server_default="0"),
    Column("unknown_costs", BigInteger, nullable=False, server_default="0"),
    Column("attempts", BigInteger, nullable=False, server_default="0"),
    Column("successes", BigInteger, nullable=False, server_default="0"),
    Column("progress", Double),
    Column("waiting_until", Double),
    Column("started_at", Double, nullable=False, server_default="0"),
)
Index("runs_by_heard", desc(runs.c.heard_at), desc(runs.c.run_id))
Index("runs_by_sandbox", runs.c.sandbox_id, desc(runs.c.heard_at))
Index("runs_behind", runs.c.heard_at, sqlite_where=IS_BEHIND, postgresql_where=IS_BEHIND)

# Apart from the run: SQLite writes a row anew as a whole, and every batch of events changes the run's.
run_states = Table(
    "run_states",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("state", LargeBinary, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("iteration", BigInteger),  # only where one starts: all up to the next start belongs to it
    Column("data", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "seq"),
)
Index("events_control", events.c.run_id, events.c.seq, sqlite_where=IS_CONTROL, postgresql_where=IS_CONTROL)
Index("events_diffs", events.c.run_id, events.c.seq, sqlite_where=IS_DIFF, postgresql_where=IS_DIFF)
Index(
    "events_starts",
    events.c.run_id,
    events.c.seq,
    events.c.iteration,
    sqlite_where=IS_START,
    postgresql_where=IS_START,
)

# The published table, with what else is known of an iteration beside it.
continuous_iterations = Table(
    "continuous_iterations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("sandbox_id", Text, nullable=False),
    Column("iteration_num", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("cost_usd", Double),
    Column("session_id", Text),
    Column("transcript_b64", Text),  # stays empty: transcripts travel as parcels
    Column("output_preview", Text),
    Column("started_at", DateTime(timezone=True)),
    Column("completed_at", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), server_default=func.current_timestamp()),
    Column("run_id", Text, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("faults", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("estimated_usd", Double, nullable=False),
    Column("unknown_costs", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("files_changed", BigInteger, nullable=False),
    Column("commits", Text, nullable=False),
    Column("claim", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("review", Text, nullable=False),
    UniqueConstraint("run_id", "iteration_num", name="continuous_iterations_of_run"),
)
Index("idx_continuous_iterations_sandbox", continuous_iterations.c.sandbox_id)
Index("continuous_iterations_by_start", continuous_iterations.c.started_at)

orders = Table(
    "orders",
    metadata,
    Column("number", _GROWING, primary_key=True, autoincrement=True),
    Column("run_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("given_by", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("seen", BigInteger, nullable=False, server_default="0"),
    Column("data", Text, nullable=False),
    sqlite_autoincrement=True,  # a number is never given twice
)
Index("orders_of_run", orders.c.run_id, orders.c.number)

messages = Table(
    "messages",
    metadata,
    Column("number", _GROWING, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("sandbox_id", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("message_type", Text, nullable=False),
    Column("at", Double, nullable=False),
    sqlite_autoincrement=True,
)
Index("messages_of_sandbox", messages.c.sandbox_id, messages.c.number)

parcels = Table(
    "parcels",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("tenure", BigInteger, nullable=False, server_default="0"),
    Column("seq", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("run_id", "name"),
)

keys = Table(
    "keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("secret_hash", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("sandbox_id", Text),
    Column("label", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("last_used_at", Double),
    Column("parent_id", Text),
    Column("revoked", Boolean, nullable=False, server_default=text("false")),
)
Index("keys_of_sandbox", keys.c.sandbox_id)
Index("keys_of_parent", keys.c.parent_id)
