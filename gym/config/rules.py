"""The rules of `gym env validate`: what each finds, and what to do about it.

Owns the list, and nothing of how a rule is applied: the checks know that. A rule that is reported and
does not stand here fails the tests, and so does one that stands here and has no broken config.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """What a problem of this kind is about."""

    finds: str
    """A sentence."""
    fix: str
    """What to do in general; the problem itself says it of the very key."""


RULES: dict[str, Rule] = {
    "agent-type": Rule(
        "An `--agent-type` that cannot take the place of an agent of this configuration.",
        "Add the config of an environment with sessions whose `allowed_agents` name it.",
    ),
    "almost-instance": Rule(
        "A block that was meant to be an instance and names no implementation.",
        "Give it the form `<name>: {<kind>: {<implementation>: {…}}}`.",
    ),
    "bad-name": Rule(
        "An instance or implementation whose name cannot be used in addresses, files and containers.", "Use letters, digits, `_` and `-`."
    ),
    "broken-implementation": Rule(
        "The `config.py` of an implementation cannot be imported, or defines no `Config`.", "Correct that file; the line is named."
    ),
    "config-cycle": Rule(
        "Files that name each other as bases, in a circle, which is shown.", "Remove one of the entries in `config_paths`."
    ),
    "config-not-found": Rule(
        "A file of `--config` or `config_paths` that is in none of the roots.",
        "Correct the path; a file of nearly the same name is suggested.",
    ),
    "config-paths": Rule("A `config_paths` that is no list of files.", "Write a list, also for one file."),
    "data-not-prepared": Rule(
        "The rows of a data set are not there yet. A script makes them, or they are yours to put there.",
        "Run the script that is named.",
    ),
    "deprecated": Rule("A config that its manifest calls deprecated is used.", "Use the config that its header names."),
    "directive": Rule(
        "An `_inherit_from`, `_copy` or `_delete_key` that cannot be carried out.",
        "Do what the line says: keep one of two, or correct the name.",
    ),
    "domain-differs": Rule("A manifest and its config name different domains.", "Correct one of the two."),
    "duplicate-key": Rule("A key that stands twice in one mapping of a file, of which YAML would take the last.", "Keep one."),
    "file-missing": Rule(
        "A file that the configuration names is not there: example rows, a script, an entrypoint, a token.",
        "Correct the path; a file of nearly the same name is suggested.",
    ),
    "file-unreadable": Rule("A config file that cannot be read, or is no UTF-8 text.", "Mend its permissions, or save it as UTF-8."),
    "gold-exposed": Rule(
        "A resources server gives the gold solution to some agents, and is paired with another one.",
        "Clear `expose_gold_to`, or pair one of those agents.",
    ),
    "host": Rule(
        "A host that is none, or (a warning) one that contradicts `use_absolute_ip`.",
        "Write a host name or an address, without scheme and port.",
    ),
    "inherit-cycle": Rule("Blocks that inherit from each other, in a circle, which is shown.", "Remove one of the directives."),
    "inherit-unknown": Rule("An `_inherit_from` or `_copy` of a block that does not exist, or is removed.", "Correct the name."),
    "interpolation": Rule(
        "A `${…}` that cannot be resolved: it refers to a value that is not set, or is no expression.",
        "Set the value as shown, or correct the name.",
    ),
    "interpolation-cycle": Rule("Values that refer to each other, in a circle, which is shown.", "Write one of them out."),
    "manifest-place": Rule(
        "A manifest where none is looked for, or one that is about another config than the one beside it.",
        "Move it to `<config's name>/manifest.yaml`.",
    ),
    "missing-environment": Rule(
        "An environment variable that a value asks for and that is not set.", "Export it, or set the value with the override that is shown."
    ),
    "missing-key": Rule("A required key that is not there.", "Add it."),
    "missing-value": Rule("A value that must be given (`???`).", "Give it with the override that is shown."),
    "name-differs": Rule("The name of a manifest is not what its path says.", "Write the name that is shown."),
    "no-instances": Rule(
        "A configuration without any server instance. Nothing is wrong with it, and nothing can be run: it does not pass.",
        "Name a config that has instances.",
    ),
    "no-manifest": Rule(
        "A config that declares data sets and has no manifest; only `--all` looks for it.", "Write one; see [manifests.md](manifests.md)."
    ),
    "override-delete": Rule("A `~key` that cannot delete what it names.", "Give the whole list, or leave the value out."),
    "override-exists": Rule("A `+key=value` for a key that is set already.", "Leave the `+` out, or write `++`."),
    "override-syntax": Rule("An override that cannot be read.", "Quote the value as shown."),
    "override-type": Rule("An override that lays a mapping over a list.", "Give the whole list."),
    "override-unknown-key": Rule("An override of a key that nothing has.", "Correct the name, or add the key with `+`."),
    "pairing": Rule("An agent that the `allowed_agents` of its resources server do not list.", "Use one that they list."),
    "port-taken": Rule("Two servers on one port.", "Give another port, or none to get a free one."),
    "removes-nothing": Rule("A null that was to remove an instance, and there is none of that name.", "Correct the name."),
    "sandbox-reach": Rule(
        "A sandbox that cannot reach the model which the agent in it calls.", "Give it a network with a way to this machine, as shown."
    ),
    "secret-in-file": Rule(
        "A secret that is written out in a file other than `env.yaml`. It is not repeated.",
        "Move it to `env.yaml`, or write `${oc.env:NAME}`.",
    ),
    "stale": Rule("A mirrored field of a manifest that differs from the config.", "Run `gym env validate --manifest … --sync`."),
    "taskset-route": Rule("A taskset that no environment server takes, or more than one.", "Say which with `environment_server_routes`."),
    "time-budget": Rule(
        "A time that does not fit into the one around it: a worker into its episode, either with what follows it into the sandbox.",
        "Set one of the numbers as shown.",
    ),
    "tool-transport": Rule(
        "A way to the tools that the resources server does not offer or the agent cannot use.", "Leave it out, or offer it."
    ),
    "two-implementations": Rule("A kind with two implementations below it.", "Keep one; `_delete_key` drops an inherited one."),
    "two-kinds": Rule("An instance of two kinds.", "Make two instances of it."),
    "two-providers": Rule("A sandbox provider block with two providers in it.", "Keep one; `_delete_key` drops an inherited one."),
    "unknown-implementation": Rule("An implementation of which there is no folder.", "Correct the name, or add the folder."),
    "unknown-key": Rule(
        "A key that nothing reads, at any depth. A warning in `env.yaml`, and for an implementation without a `config.py`.",
        "Correct the name, or move the key where the line says.",
    ),
    "unknown-kind": Rule("A kind of server that does not exist, or is left out.", "Write one of the four kinds."),
    "unknown-license": Rule("The name of a licence that is not known. It stops no run.", "Write an SPDX identifier."),
    "unknown-provider": Rule(
        "A sandbox provider, or the name of a provider block, that does not exist.", "Correct the name, or add the block."
    ),
    "unknown-reference": Rule(
        "A reference to an instance that does not exist, is removed, or is only a template.", "Correct the name, or define it."
    ),
    "wrong-kind": Rule("A reference to an instance of another kind.", "Name one of the right kind."),
    "wrong-value": Rule("A value of the wrong type, out of its range, or at odds with another.", "Write what the line asks for."),
    "yaml-syntax": Rule("A file that is no YAML mapping.", "Correct it at the place that is named."),
}
