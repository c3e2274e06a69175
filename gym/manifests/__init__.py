"""What is said of an environment beside its config: checked against it, listed, and made for a new one.

`schema` is what a manifest may say, `places` where it stands, `composition` what its config says of
the same, `check` and `sync` compare the two, `catalog` lists what there is.
"""
