"""Credentials: tokens, certificates, pairing codes, and quotas."""
