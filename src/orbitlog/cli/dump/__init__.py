"""`orbitlog dump`: prints the files of a store as rows."""
