"""The client side of OAuth: how a program gets access tokens, keeps them and renews them."""
