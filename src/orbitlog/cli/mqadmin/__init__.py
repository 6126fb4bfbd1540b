"""`orbitlog mqadmin`: the verbs and flags of Apache's admin tool, for scripts that move over; one module a family."""
