"""Recursions over the tree of bodies, one textbook algorithm per file, and what they stand on."""
