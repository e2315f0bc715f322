"""A client: one class for every server, whatever it speaks and wherever it runs."""
