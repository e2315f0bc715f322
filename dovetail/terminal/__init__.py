"""Dialogs that ask a person at a terminal: forms, URLs to visit, consent."""
