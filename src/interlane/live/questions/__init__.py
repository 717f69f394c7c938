"""What users ask beyond the present state: when, what if, what was."""
