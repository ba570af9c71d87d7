"""How many requests will arrive: level, trend and season of each workflow's arrivals."""
