"""Workloads that ended a while ago, which the service moves out of its snapshots."""

import sqlalchemy as sa
from alembic import op

revision = "9"
down_revision = "8"


def upgrade() -> None:
    """Create the table. It is filled by the first service that starts, before its next snapshot."""
    op.create_table(
        "ended",
        sa.Column("workload", sa.String(255), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("submitted_ms", sa.BigInteger, nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("notebook", sa.String(64), nullable=False),
        sa.Column("listed", sa.Boolean, nullable=False),
        sa.Column("unit", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("ix_ended_seq", "ended", ["seq"])
    op.create_index("ix_ended_order", "ended", ["submitted_ms", "workload"])
    op.create_index("ix_ended_whose", "ended", ["user", "notebook", "submitted_ms"])
