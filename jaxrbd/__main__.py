"""`python -m jaxrbd` is the command `jaxrbd`."""

from jaxrbd.cli import main

raise SystemExit(main())
