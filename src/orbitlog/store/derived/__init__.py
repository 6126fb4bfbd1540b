"""ConsumeQueues and index files of an open store."""
