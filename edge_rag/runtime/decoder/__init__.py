"""Model runners for generators."""
