"""What users write: job files and function files."""
