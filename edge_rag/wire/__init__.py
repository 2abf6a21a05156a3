"""Mapping between protobuf messages and core values."""
