"""Producers, consumers and administration over RocketMQ's protocol; async first, with a synchronous twin."""
