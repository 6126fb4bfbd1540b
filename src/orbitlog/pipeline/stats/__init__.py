"""Statistics jobs: message rates, sizes and consumer lag."""
