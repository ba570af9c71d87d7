"""How long until a replica that is decided on can work, next to Ray Serve's own autoscaling from zero."""
