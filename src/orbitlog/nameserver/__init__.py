"""The name server: a pure table of routes, and a thin server over it."""
