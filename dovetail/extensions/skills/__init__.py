"""Skills: folders of instructions for models, published by servers and verified by clients."""
