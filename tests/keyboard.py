"""Keys, as the events of a keyboard with a US layout."""

from typing import Any

ALT, CONTROL, META, SHIFT = 1, 2, 4, 8
MODIFIERS = {"Alt": ALT, "Control": CONTROL, "Meta": META, "Shift": SHIFT}
NAMED = {
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Delete": 46,
}
PUNCTUATION = {
    " ": ("Space", 32),
    ";": ("Semicolon", 186),
    "=": ("Equal", 187),
    ",": ("Comma", 188),
    "-": ("Minus", 189),
    ".": ("Period", 190),
    "/": ("Slash", 191),
    "`": ("Backquote", 192),
    "[": ("BracketLeft", 219),
    "\\": ("Backslash", 220),
    "]": ("BracketRight", 221),
    "'": ("Quote", 222),
}
SHIFTED = dict(zip('~!@#$%^&*()_+{}|:"<>?', "`1234567890-=[]\\;',./", strict=True))


def parse_keys(keys: str) -> dict[str, Any]:
    """Return the params of `Input.dispatchKeyEvent` for keys such as `Enter`, `?`, `A` or
    `Control+Shift+k`."""
    if keys == "\n":
        keys = "Enter"
    *names, key = [keys] if len(keys) == 1 else keys.split("+")
    modifiers = sum(MODIFIERS[name] for name in names)
    if key in NAMED:
        text = {"text": "\r"} if key == "Enter" else {}
        return _event(key, key, NAMED[key], modifiers) | text
    base = SHIFTED.get(key, key.lower())
    if base != key:
        modifiers |= SHIFT
    event = _event(key, *_position(base), modifiers)
    return event if modifiers & ~SHIFT else event | {"text": key}


def _event(key: str, code: str, number: int, modifiers: int) -> dict[str, Any]:
    return {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}


def _position(base: str) -> tuple[str, int]:
    if base in PUNCTUATION:
        return PUNCTUATION[base]
    if base.isascii() and base.isalpha():
        return f"Key{base.upper()}", ord(base.upper())
    return (f"Digit{base}", ord(base)) if base.isdigit() else ("", 0)
