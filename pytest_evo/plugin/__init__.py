"""Everything that knows pytest and xdist."""
