"""The places where sandboxes run, one package each, with light modules of options beside them."""
