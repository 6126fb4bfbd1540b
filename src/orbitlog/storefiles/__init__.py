"""Files of a store found, mapped, walked and judged: names, paths, contents, inference, findings, and the disk."""
