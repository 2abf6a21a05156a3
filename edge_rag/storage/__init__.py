"""The SQLite database: documents, chunks, jobs, collections, backups."""
