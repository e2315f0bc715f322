"""Channels: how messages travel as bytes. Nothing here knows about servers and clients."""
