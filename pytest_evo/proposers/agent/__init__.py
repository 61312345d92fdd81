"""The proposer that lets a coding agent edit the files."""
