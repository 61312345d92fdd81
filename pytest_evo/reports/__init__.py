"""Reports compute; others print."""
