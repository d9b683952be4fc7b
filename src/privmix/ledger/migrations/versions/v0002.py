"""Budgets for adaptive choices, and contents known by the hash of each file instead of one hash of a listing."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add two columns; what is there keeps its meaning: planned budgets, and contents known by their listing."""
    op.add_column("datasets", sa.Column("filter", sa.Text, nullable=True))
    op.add_column("fingerprints", sa.Column("kind", sa.String(20), nullable=False, server_default="listing"))
