"""The pull-request decision."""
