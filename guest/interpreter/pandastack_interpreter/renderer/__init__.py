"""Pictures of charts that only a browser can draw: one process for all contexts of a sandbox, started when it is first wanted."""
