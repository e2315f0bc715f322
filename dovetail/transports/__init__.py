"""Channels, which carry messages as bytes, independent of the server and client packages."""
