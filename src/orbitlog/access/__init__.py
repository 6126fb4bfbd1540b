"""Access control: principals, policies, decisions and request signatures; servers ask it before every request."""
