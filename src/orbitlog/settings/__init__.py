"""Settings machinery that broker, name server and store share: keys, parsers, properties files, Java's keys."""
