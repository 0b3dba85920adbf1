"""Each run may have a key, which only its driver knows."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Runs that are there began without one."""
    op.add_column("runs", sa.Column("driver_hash", sa.Text(), server_default="", nullable=False))
