"""The schema's history; Alembic runs it."""
