"""YAML 1.2, read with `ruamel.yaml`, which only this package imports.

loader.py      turns untrusted text into JSON values
positions.py   finds where each value is in the text, so that one of them can be changed
"""

from .loader import MAX_CHARACTERS, YamlError, load_long_yaml, load_yaml
from .positions import YamlEntry, YamlNode, scan_yaml

__all__ = [
    "MAX_CHARACTERS",
    "YamlEntry",
    "YamlError",
    "YamlNode",
    "load_long_yaml",
    "load_yaml",
    "scan_yaml",
]
