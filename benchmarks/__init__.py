"""Benchmarks: each prints its figure beside baselines taken in the same run."""
