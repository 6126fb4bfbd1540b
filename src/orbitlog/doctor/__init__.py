"""The doctor: diagnoses a store, explains it, repairs it and reports what a move to another broker would change."""
