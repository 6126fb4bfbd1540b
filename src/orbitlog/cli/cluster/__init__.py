"""Commands for a running cluster: topics, groups, offsets, messages, configuration, health and load."""
