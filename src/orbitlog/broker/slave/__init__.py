"""The slave role of a broker: follows a master's log and tables, and refuses requests that only a master serves."""
