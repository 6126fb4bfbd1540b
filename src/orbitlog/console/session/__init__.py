"""Sessions: users, roles, sign-in, and the checks before every request."""
