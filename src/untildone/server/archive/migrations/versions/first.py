"""The tables the archive begins with."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    _continuous_iterations()
    _events()
    _keys()
    _messages()
    _orders()
    _parcels()
    _run_states()
    _runs()


def _continuous_iterations() -> None:
    op.create_table(
        "continuous_iterations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("iteration_num", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("transcript_b64", sa.Text(), nullable=True),
        sa.Column("output_preview", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("CURRENT_TIMESTAMP"), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("faults", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("estimated_usd", sa.Double(), nullable=False),
        sa.Column("unknown_costs", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("files_changed", sa.BigInteger(), nullable=False),
        sa.Column("commits", sa.Text(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("review", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "iteration_num", name="continuous_iterations_of_run"),
    )
    op.create_index("idx_continuous_iterations_sandbox", "continuous_iterations", ["sandbox_id"], unique=False)
    op.create_index("continuous_iterations_by_start", "continuous_iterations", ["started_at"], unique=False)


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.BigInteger(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq"),
    )
    op.create_index(
        "events_control",
        "events",
        ["run_id", "seq"],
        unique=False,
        sqlite_where=sa.text("kind = 'control'"),
        postgresql_where=sa.text("kind = 'control'"),
    )
    op.create_index(
        "events_diffs",
        "events",
        ["run_id", "seq"],
        unique=False,
        sqlite_where=sa.text("type IN ('agent.file_edited', 'iteration.files_changed')"),
        postgresql_where=sa.text("type IN ('agent.file_edited', 'iteration.files_changed')"),
    )
    op.create_index(
        "events_starts",
        "events",
        ["run_id", "seq", "iteration"],
        unique=False,
        sqlite_where=sa.text("iteration IS NOT NULL"),
        postgresql_where=sa.text("iteration IS NOT NULL"),
    )


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("sandbox_id", sa.Text(), nullable=True),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("revoked", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("key_id"),
        sa.UniqueConstraint("secret_hash"),
    )
    op.create_index("keys_of_parent", "keys", ["parent_id"], unique=False)
    op.create_index("keys_of_sandbox", "keys", ["sandbox_id"], unique=False)


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("message_type", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
    )
    op.create_index("messages_of_sandbox", "messages", ["sandbox_id", "number"], unique=False)


def _orders() -> None:
    op.create_table(
        "orders",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("given_by", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("seen", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
    )
    op.create_index("orders_of_run", "orders", ["run_id", "number"], unique=False)


def _parcels() -> None:
    op.create_table(
        "parcels",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tenure", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "name"),
    )


def _run_states() -> None:
    op.create_table(
        "run_states",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("control_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("trimmed_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tenure", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("trace_chars", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("newest_order", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("folded_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("goal", sa.Text(), server_default="", nullable=False),
        sa.Column("folder", sa.Text(), server_default="", nullable=False),
        sa.Column("host", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.Text(), server_default="new", nullable=False),
        sa.Column("phase", sa.Text(), server_default="", nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("success", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("verified", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("verdict", sa.Text(), server_default="", nullable=False),
        sa.Column("cost_usd", sa.Double(), server_default="0", nullable=False),
        sa.Column("estimated_usd", sa.Double(), server_default="0", nullable=False),
        sa.Column("unknown_costs", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("successes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("progress", sa.Double(), nullable=True),
        sa.Column("waiting_until", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index(
        "runs_behind",
        "runs",
        ["heard_at"],
        unique=False,
        sqlite_where=sa.text("control_seq > folded_seq OR (origin = 'published' AND last_seq > folded_seq)"),
        postgresql_where=sa.text("control_seq > folded_seq OR (origin = 'published' AND last_seq > folded_seq)"),
    )
    op.create_index(
        "runs_by_heard", "runs", [sa.literal_column("heard_at DESC"), sa.literal_column("run_id DESC")], unique=False
    )
    op.create_index("runs_by_sandbox", "runs", ["sandbox_id", sa.literal_column("heard_at DESC")], unique=False)
