"""The configuration files of hosts: where they are, and how one server is added or removed.

hosts.py        lists the hosts, and where their files are
host_entry.py   writes a server as an entry of a host
server_command.py   turns a file, a URL or a command into a server that a host can start
edit.py         changes one entry in a text, and leaves every other byte as it is
splice.py       what the three editors share: edit_json.py, edit_toml.py and edit_yaml.py
toml_scan.py    finds the statements of a TOML text
files.py        reads and replaces files
records.py      remembers what was written, so that it can be removed again
entries.py      adds an entry to a file, or removes it: all of the above in one step
difference.py   shows what changes in a file
hiding.py       hides the secrets of an entry that is shown
install.py      plans that for a host, and uses the host's own command if it runs
host_commands.py   the commands of hosts that can add a server themselves
verified_commands.py   runs them, and checks what they did
inputs.py       adds the inputs of VS Code, which ask for values
running.py      says whether a host runs
links.py        makes links that add a server with one click
survey.py       lists the hosts of this machine and their servers
"""
