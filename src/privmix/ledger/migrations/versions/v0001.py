"""The first schema: datasets with budgets, an append-only history, and content fingerprints."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NEVER = "the history of a ledger is append-only"


def upgrade() -> None:
    """Create the tables, and refuse changes of what was written."""
    op.create_table(
        "datasets",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("epsilon", sa.Float(53), nullable=False),
        sa.Column("delta", sa.Float(53), nullable=False),
        sa.Column("adjacency", sa.String(20), nullable=False),
        sa.Column("entries", sa.Integer, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
    )
    op.create_table(
        "entries",
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("datasets.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "fingerprints",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("datasets.id"), nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER entries_no_{change.lower()} BEFORE {change} ON entries "
                f"BEGIN SELECT RAISE(ABORT, '{_NEVER}'); END"
            )
        # INSERT OR REPLACE deletes without asking the trigger above.
        op.execute(
            "CREATE TRIGGER entries_no_replace BEFORE INSERT ON entries WHEN EXISTS (SELECT 1 FROM entries WHERE "
            f"dataset_id = NEW.dataset_id AND number = NEW.number) BEGIN SELECT RAISE(ABORT, '{_NEVER}'); END"
        )
    else:
        op.execute(
            "CREATE FUNCTION privmix_append_only() RETURNS trigger AS $$ "
            f"BEGIN RAISE EXCEPTION '{_NEVER}'; END $$ LANGUAGE plpgsql"
        )
        # TRUNCATE fires only triggers for each statement.
        op.execute(
            "CREATE TRIGGER entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entries "
            "FOR EACH STATEMENT EXECUTE FUNCTION privmix_append_only()"
        )
