"""JSON tables below config/: topics, groups, offsets, and the JSON dialect they are written in."""
