"""Tables of the broker: topics, groups, offsets, clients, locks, statistics, and how they are saved."""
