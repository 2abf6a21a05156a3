"""Vector indexes: exact, IVF, and layered over both; caches of the vectors in the database."""
