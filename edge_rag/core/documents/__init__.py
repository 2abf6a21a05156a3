"""Values about stored documents: metadata, filters, collections and ingest jobs."""
