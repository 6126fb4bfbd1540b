"""Retention: which segments expire, and deletion of segments and topics."""
