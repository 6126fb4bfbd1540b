"""Bytes on disk, pure: every file that RocketMQ keeps, read and written one record at a time.

No I/O, no clock, nothing from outside but the compression codecs. Start with `message` and `message_scan`; the rules
that turn a message into queue units and index keys are in `derive`; what differs between versions is in `compat`.
"""
