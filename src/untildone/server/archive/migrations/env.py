"""How a migration is run: on the connection that `migrating.py` hands over."""

from alembic import context

from untildone.server.archive.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
