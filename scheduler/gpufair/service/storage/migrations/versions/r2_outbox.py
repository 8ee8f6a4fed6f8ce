"""Notices that are still to be sent."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Create the table, unless a service of version 1 has: the last of them did so without another version."""
    op.create_table(
        "outbox",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(512), nullable=False, unique=True),
        sa.Column("channel", sa.String(16), nullable=False),
        sa.Column("notice", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
