"""`orbitlog access`: users, policies and decisions of access control, by the file of a broker or name server."""
