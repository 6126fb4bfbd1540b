"""Commands that talk to a running cluster: topics, groups, offsets, messages, sends, load."""
