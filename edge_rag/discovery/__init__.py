"""Multicast DNS on the local network: announces this box and finds others.

Received announcements are address hints only, since any host on the network can send them; TLS authenticates servers.
"""
