"""Dispatch: derives queue units and index entries from the log, in the broker or in another process."""
