"""Producers, consumers and administration over the remoting protocol; async first, with a blocking twin."""
