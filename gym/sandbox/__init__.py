"""Sandboxes: what they are asked to be, who may do what with them, and the providers that run them."""
