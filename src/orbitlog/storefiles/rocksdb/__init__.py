"""RocksDB: databases in which a 5.x broker may keep ConsumeQueues and tables, read without touching them."""
