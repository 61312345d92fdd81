"""The artifact: its schema, its content-addressed versions, what may be edited."""
