"""The message store: append, dispatch, flush, read, recover, retain. Steps only: no threads and no clock of its own."""
