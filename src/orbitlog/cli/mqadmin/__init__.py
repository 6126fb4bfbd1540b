"""`orbitlog mqadmin`: the verbs, flags and output of Apache's admin tool, for scripts that migrate."""
