"""Kernels of reads that the broker answers."""
