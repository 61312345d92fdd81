"""Named presets that combine the parts of the engine."""
