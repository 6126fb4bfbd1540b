"""Explorer: store directories without a broker; only reads, and only directories given at the start."""
