"""Servers in Python code that are named by a string: how to parse the string and load the
server."""
