"""What Orbitlog is tested with, and what those who build on it may test with too."""
