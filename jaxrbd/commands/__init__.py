"""What the commands of `jaxrbd` do; `cli.py` parses their arguments."""
