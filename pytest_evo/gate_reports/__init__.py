"""What people and CI see of a gate; nothing here prints or decides."""
