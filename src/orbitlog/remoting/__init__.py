"""Sockets: commands of the wire sent and received with asyncio, both ends."""
