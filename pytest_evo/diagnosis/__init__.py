"""Rollouts to evidence to diagnoses."""
