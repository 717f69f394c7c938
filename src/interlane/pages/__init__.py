"""The web pages: people looking at the live machine, in the server's own process."""
