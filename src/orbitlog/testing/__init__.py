"""Test tools for Orbitlog and for projects that build on it: a broker in a thread, golden stores, a crash disk."""
