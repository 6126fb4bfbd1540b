"""Producers: sends, retries, queue choice, transactions, request-reply, traces."""
