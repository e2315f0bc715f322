"""The client: one class for every server, regardless of its protocol revision and transport."""
