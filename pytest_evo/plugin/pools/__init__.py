"""Evaluators over different transports."""
