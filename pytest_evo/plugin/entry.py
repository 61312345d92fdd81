"""The pytest plugin: options, fixtures, registration. Kept light: loaded by every run."""
