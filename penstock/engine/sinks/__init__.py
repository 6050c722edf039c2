"""Where results go: sinks, routes to them, and files that sinks share."""
