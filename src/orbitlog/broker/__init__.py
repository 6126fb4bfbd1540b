"""The broker: request handlers, tables of topics, groups and offsets, long polling, loops and wiring."""
