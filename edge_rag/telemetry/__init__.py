"""Logs, metrics, traces, audit log and service manager notifications."""
