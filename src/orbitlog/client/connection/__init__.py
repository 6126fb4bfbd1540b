"""Connections: addresses, routes, credentials, names, and requests that a broker sends to clients."""
