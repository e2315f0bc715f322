"""Channels, which carry messages as bytes and do not depend on the server or client packages."""
