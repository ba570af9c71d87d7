"""Where settings come from: flags, environment, a `dyorc.toml`, defaults, in this order. `settings_reader.read` combines them."""
