"""`orbitlog doctor`: check, explain, move, rebuild, repair, undo."""
