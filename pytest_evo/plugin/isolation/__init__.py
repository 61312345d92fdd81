"""What keeps one candidate from reaching another."""
