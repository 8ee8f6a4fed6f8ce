"""Who held which GPUs when. The past begins with the upgrade: what is held then is filled in at the next start."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "stays",
        sa.Column("workload", sa.String(255), primary_key=True),
        sa.Column("incarnation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("node", sa.String(255), primary_key=True),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("allocation", sa.Text, nullable=False),
        sa.Column("granted_ms", sa.BigInteger, nullable=False),
        sa.Column("up_ms", sa.BigInteger, nullable=True),
        sa.Column("protected", sa.Text, nullable=False),
        sa.Column("devices", sa.Text, nullable=False),
        sa.Column("preempted_ms", sa.BigInteger, nullable=True),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("freed_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_stays_freed_ms", "stays", ["freed_ms"])
