ALLOWED: dict[str, int] = {}
