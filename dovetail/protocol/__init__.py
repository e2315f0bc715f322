"""The vocabulary of the protocol: the union of all that its revisions ever said. Declarations
only."""
