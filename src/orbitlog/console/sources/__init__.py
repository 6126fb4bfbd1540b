"""Sources: connections to clusters, and samples of their state."""
