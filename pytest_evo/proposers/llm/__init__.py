"""The proposer that asks a language model, with tools or with blocks of text."""
