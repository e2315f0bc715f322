"""Ready-made guards: what a server may put between itself and the world."""
