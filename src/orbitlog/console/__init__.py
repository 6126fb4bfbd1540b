"""Web console: pages and a JSON API over clusters and store directories; imported by `cli` alone."""
