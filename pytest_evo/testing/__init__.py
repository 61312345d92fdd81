"""Contract suites and doubles, for this project and for users."""
