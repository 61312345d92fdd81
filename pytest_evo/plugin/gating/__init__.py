"""``--evo-gate`` and ``--evo-baseline-update``: two versions measured side by side."""
