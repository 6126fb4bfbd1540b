"""Recovery: decides what an unclean or foreign store keeps, and restores its queues and index."""
