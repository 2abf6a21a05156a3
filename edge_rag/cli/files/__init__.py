"""Files on the client machine: walking folders, uploading, and keeping a folder in sync."""
