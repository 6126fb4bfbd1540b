"""Move report: what changes, is lost or is refused when a store changes between Apache's broker and Orbitlog."""
