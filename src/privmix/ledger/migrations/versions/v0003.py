"""Budgets for persons: what the datasets that a total is about differ by."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add a column; what is there keeps its meaning: totals for one record."""
    op.add_column("datasets", sa.Column("unit", sa.String(20), nullable=False, server_default="record"))
