"""Fuzzing: `make fuzz` feeds each reader of the package what nobody should send; `python -m
tests.fuzz --help` says more."""
