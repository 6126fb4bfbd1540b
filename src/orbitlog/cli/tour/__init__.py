"""`orbitlog demo`: the guided tour."""
