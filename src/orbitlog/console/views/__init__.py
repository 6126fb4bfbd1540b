"""Views: typed answers about a cluster, shared by pages and API."""
