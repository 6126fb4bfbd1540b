"""TLS of connections: sessions over bytes, the choice by the first byte, contexts and their reload."""
