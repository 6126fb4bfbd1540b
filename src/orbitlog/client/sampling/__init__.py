"""Sampling of a running cluster by administration requests, for `orbitlog exporter` and `orbitlog top`."""
