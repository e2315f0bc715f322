"""The configuration files of hosts: where they are, and how one server is added or removed.

hosts.py        lists the hosts, and where their files are
host_entry.py   writes a server as an entry of a host
edit.py         changes one entry in a text, and leaves every other byte as it is
splice.py       what the three editors share: edit_json.py, edit_toml.py and edit_yaml.py
toml_scan.py    finds the statements of a TOML text
files.py        reads and replaces files
records.py      remembers what was written, so that it can be removed again
apply.py        adds an entry to a file, or removes it: all of the above in one step
"""
