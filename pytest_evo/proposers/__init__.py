"""What edits the files."""
