"""RocketMQ's remoting protocol, sans-I/O: frames, both header encodings, commands, headers, bodies, codes."""
