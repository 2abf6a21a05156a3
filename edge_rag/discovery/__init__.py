"""Multicast DNS on the local network: boxes announce themselves and look for others.

What is heard there is an address hint and nothing else. Anybody on the network can say anything; who somebody is, TLS
decides.
"""
