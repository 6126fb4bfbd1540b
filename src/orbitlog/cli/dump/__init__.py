"""`orbitlog dump`: files of a store as rows."""
