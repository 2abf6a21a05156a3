"""The bytes of documents that arrive or wait to be stored."""
