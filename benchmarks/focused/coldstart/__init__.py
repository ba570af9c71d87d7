"""How long until a replica that is decided on can work, beside Ray Serve's own autoscaling from zero."""
