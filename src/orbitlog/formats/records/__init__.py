"""Records of the CommitLog: messages, batches, properties, ids, and the payloads of system messages."""
