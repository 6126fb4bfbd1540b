"""Servers: `orbitlog up`, `broker` and `nameserver`, and the processes that they supervise."""
