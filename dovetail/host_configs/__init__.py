"""Add a server to the configuration of a host, and remove it again, without changing anything else.

`hosts` says which hosts there are and where their files are; `server_command` turns a file, a URL
or a command into an entry; `host_entry` writes the entry in the form of the host.
"""
