"""Graph files that tests load as a user would: by path."""
