"""A typed client of the daemon.

``requests``, ``replies``, ``failures`` and ``retry`` are pure; ``connection`` and the calls on it drive them over a
blocking channel.
"""

from edge_rag.client.client import Client
from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.client.filter_text import parse_filter
from edge_rag.client.requests import AskOptions, SearchOptions
from edge_rag.client.retry import RetryPolicy

__all__ = ["AskOptions", "CallStatus", "Client", "ClientError", "RetryPolicy", "SearchOptions", "parse_filter"]
