"""Models: descriptions, the files they come from, and the compiled System."""
