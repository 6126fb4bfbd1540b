"""Servers: `orbitlog up`, `broker`, `nameserver`, and the processes that they start."""
