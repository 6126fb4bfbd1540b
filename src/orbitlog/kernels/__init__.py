"""The same formats a gigabyte at a time: numba scans of byte ranges into columns, and columns into file bytes.

Importing this loads numba, numpy and Arrow; nothing that must start at once may do so at its top. Each kernel has a
twin in `formats`, and one contract suite holds the two together.
"""
