"""Configuration: YAML overlays -> a `Plan`.

Pure and light: composing and checking start nothing, import no server's app and touch no
network; `gym env validate` must stay near the cost of starting Python.
"""
