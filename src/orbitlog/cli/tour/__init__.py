"""`orbitlog demo`: a guided tour of the system."""
