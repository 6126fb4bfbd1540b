"""Kernels that turn rows of columns into bytes to send."""
