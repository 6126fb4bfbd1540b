"""POP consumption: pops, acknowledgements, invisibility timeouts, revival."""
