"""The API over HTTP, and what operators and their tools look at."""
