"""Bytes on the wire, without sockets: frames, both header encodings, commands, headers, bodies, codes."""
