"""Runs that are loops inside Claude Code are told apart in lists."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """What is there is seen anew with its next event."""
    op.add_column("runs", sa.Column("in_session", sa.Boolean(), server_default=sa.text("false"), nullable=False))
