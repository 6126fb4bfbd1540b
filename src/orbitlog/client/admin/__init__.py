"""Administration: topics, groups, brokers, offset resets, inspection, dead letters."""
