"""Connections to a cluster: addresses, routes, credentials, namespaces, requests from brokers."""
