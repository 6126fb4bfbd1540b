"""Files of stores from strangers: opened without following links, and never outside the store."""
