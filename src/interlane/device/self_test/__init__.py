"""A self-test of what this machine's GPU gives, for whoever has one that we have not."""
