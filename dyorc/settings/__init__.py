"""Where settings come from: flags, environment, a `dyorc.toml`, defaults, in this order. `reading.read` puts them together."""
