"""Conversion: turns a DLedger or RocksDB store into an ordinary store in a new directory."""
