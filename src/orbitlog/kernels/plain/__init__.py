"""Plain Python under the kernels: what they use instead of numpy and machine code without the extra `fast`."""
