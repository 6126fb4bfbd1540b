"""Producers: sends, queue choice, transactions, request-reply, traces."""
