"""Appending: what a message must satisfy to be stored, batches, and the result of a put."""
