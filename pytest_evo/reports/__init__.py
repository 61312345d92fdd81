"""Reports compute text from plain values of a run; others print and write it."""
