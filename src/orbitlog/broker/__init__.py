"""The broker: request handlers, tables, background loops and wiring."""
