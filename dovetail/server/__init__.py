"""A server: registries of tools, resources and prompts, and the functions behind them."""
