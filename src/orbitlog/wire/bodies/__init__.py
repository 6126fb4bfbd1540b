"""Request and response bodies: JSON records, decoded as leniently as Java does, encoded compactly."""
