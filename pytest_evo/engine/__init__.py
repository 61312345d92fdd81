"""The loop: propose, evaluate, select, and the chain. No pytest, no files, no clock."""
