"""What protects a server: rate limits, an audit log, and redaction of secrets."""
