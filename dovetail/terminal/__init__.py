"""Dialogs that ask a person at a terminal to fill in a form, visit a URL or give consent."""
