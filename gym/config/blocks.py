"""Tells what each top-level key is: an instance, a setting, a sandbox provider, or a mistake.

Owns the shape `<name>: {<kind>: {<implementation>: {…}}}` and the did-you-mean for everything that
nearly has it. A key that only other keys refer to is left alone. It knows nothing of what stands
inside an implementation's block.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from gym.config.compose import CONFIG_PATHS
from gym.config.errors import Problem, closest, did_you_mean, shown
from gym.config.masking import shown_under
from gym.config.plan import Origin
from gym.config.roots import ENV_FILE
from gym.config.schema import KINDS, Kind, Settings
from gym.config.tree import Block, KeyPath, Leaf, Node, is_null

SANDBOX_PROVIDERS = ("docker", "local")
_DEFAULT_METADATA = "default_metadata"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class InstanceBlock:
    """One instance as written: its place in the tree and what it is."""

    name: str
    kind: Kind
    implementation: str
    block: Block
    origin: Origin

    @property
    def path(self) -> KeyPath:
        """The key path of the implementation's block."""
        return (self.name, self.kind, self.implementation)


@dataclass
class Blocks:
    """The top level, sorted."""

    instances: list[InstanceBlock] = field(default_factory=list[InstanceBlock])
    settings: dict[str, Node] = field(default_factory=dict[str, Node])
    providers: dict[str, Block] = field(default_factory=dict[str, Block])
    others: dict[str, Node] = field(default_factory=dict[str, Node])
    """Keys that exist for others to refer to."""
    faulty: set[str] = field(default_factory=set[str])
    """Keys that were meant to be instances or providers, and are reported: references to them are right."""
    removed: dict[str, Origin] = field(default_factory=dict[str, Origin])
    """Keys that were set to null, and where."""
    problems: list[Problem] = field(default_factory=list[Problem])


def sort_blocks(
    root: Block,
    *,
    templates: Collection[str],
    used: Collection[str],
    faulty: Collection[str] = (),
    kind_of: Callable[[str], Kind | None] = lambda _: None,
) -> Blocks:
    """Sorts the top-level keys.

    Templates are left out; `used` are keys that some value or directive refers to, `faulty` those that were
    reported already; `kind_of` gives the kind of an implementation's name.
    """
    out = Blocks(faulty=set(faulty))
    _unindented(root, out)
    for key, node in root.entries.items():
        if key in out.faulty:
            continue
        if is_null(node) and key not in Settings.model_fields:
            out.removed[key] = node.origin
            if not node.history and key not in used:
                known = [name for name in root.entries if name != key and not is_null(root.entries[name])]
                hint = did_you_mean(key, known, otherwise="remove the key")
                message = "null removes an instance, but there is none of this name"
                out.problems.append(Problem("removes-nothing", key, message, hint, node.origin, "warning"))
            continue
        if key in templates:
            continue
        if key in Settings.model_fields:
            out.settings[key] = node
        elif isinstance(node, Block) and any(kind in node.entries for kind in KINDS):
            if not _instance(key, node, out):
                out.faulty.add(key)
        elif isinstance(node, Block) and _misspelt_kind(key, node, kind_of, out):
            out.faulty.add(key)
        elif _provider(key, node, out):
            pass
        elif key in used:
            out.others[key] = node
        else:
            near = closest(key, (*Settings.model_fields, CONFIG_PATHS))
            hint = f"did you mean '{near}'?" if near else "remove it; an instance is <name>: {<kind>: {<implementation>: {…}}}"
            message = f"is not a setting, an instance or a sandbox provider, and nothing refers to it{_value(key, node)}"
            local = node.origin.path == ENV_FILE  # it serves every config of this folder, and other tools beside us
            severity = "warning" if local else "error"
            out.problems.append(Problem("unknown-key", key, message, hint, node.origin, severity, meant=near or ""))
    return out


def _unindented(root: Block, out: Blocks) -> None:
    """Reports kinds at the top, each with the name above it, which without anything below it reads as null."""
    for key, node in root.entries.items():
        if key not in KINDS:
            continue
        above = [
            name
            for name, other in root.entries.items()
            if is_null(other) and other.origin.path == node.origin.path and other.origin.line == node.origin.line - 1
        ]
        hint = f"indent it below {above[0]}" if above else f"write <name>: {{{key}: …}}"
        out.problems.append(Problem("almost-instance", key, "a kind stands at the top, where only names can stand", hint, node.origin))
        out.faulty.update((key, *above))


def _value(key: str, node: Node) -> str:
    return f" ({shown_under(key, node.value)})" if isinstance(node, Leaf) else ""


def _instance(name: str, node: Block, out: Blocks) -> bool:
    """Adds the instance, or reports why it is none."""

    def report(rule: str, key: str, message: str, hint: str, origin: Origin) -> None:
        out.problems.append(Problem(rule, key, message, hint, origin))

    if not _NAME.fullmatch(name):
        report("bad-name", name, f"an instance cannot have this name ({shown(name)})", "use letters, digits, _ and -", node.origin)
        return False
    bodies = [body for kind in KINDS if isinstance(body := node.entries.get(kind), Block)]
    implementations = [inner for body in bodies for inner, child in body.entries.items() if isinstance(child, Block)]
    target = implementations[0] if len(implementations) == 1 else "the implementation's block"
    for key, child in node.entries.items():
        if key not in KINDS:
            hint = did_you_mean(key, KINDS, otherwise=f"move it into {target}")
            message = f"stands beside the kind, where only a kind can stand{_value(key, child)}"
            report("unknown-key", f"{name}.{key}", message, hint, child.origin)
    kinds: list[Kind] = [kind for kind in KINDS if kind in node.entries and not is_null(node.entries[kind])]
    if len(kinds) > 1:
        hint = "give each instance one kind; write the other as an instance of its own"
        report("two-kinds", name, f"has two kinds ({', '.join(kinds)})", hint, node.origin)
        return False
    if not kinds:
        report("almost-instance", name, "has no kind that is not null", "to remove an instance, set its name to null", node.origin)
        return False
    kind = kinds[0]
    found = _implementation(f"{name}.{kind}", kind, node.entries[kind], out)
    if found is None:
        return False
    out.instances.append(InstanceBlock(name, kind, *found, node.origin))
    return True


def _implementation(where: str, kind: Kind, body: Node, out: Blocks) -> tuple[str, Block] | None:
    """The one implementation below a kind and its block, or a report and None."""

    def report(rule: str, key: str, message: str, hint: str, origin: Origin) -> None:
        out.problems.append(Problem(rule, key, message, hint, origin))

    if not isinstance(body, Block):
        message = f"should be a mapping with one implementation{_value(kind, body)}"
        report("almost-instance", where, message, f"write {kind}: {{<implementation>: {{…}}}}", body.origin)
        return None
    blocks = [key for key, child in body.entries.items() if isinstance(child, Block)]
    names = [key for key, child in body.entries.items() if not is_null(child)]
    bare = [key for key in body.entries if key not in names] if not blocks else []  # its keys are one indentation short
    owners = blocks or bare
    misplaced = [key for key in names if key not in owners] if len(owners) == 1 else []
    for key in misplaced:
        message = f"stands beside the implementation, where only an implementation can stand{_value(key, body.entries[key])}"
        report("unknown-key", f"{where}.{key}", message, f"move it into {owners[0]}", body.entries[key].origin)
    if misplaced and bare:
        return None
    names = owners if misplaced else names
    if not names and len(body.entries) == 1:
        names = list(body.entries)  # `simple_agent:` with nothing below it: all defaults
    if len(names) > 1:
        hint = f"keep one; to replace an inherited one write _delete_key: {names[0]}"
        report("two-implementations", where, f"has two implementations ({', '.join(names)})", hint, body.origin)
        return None
    if not names:
        report("almost-instance", where, "names no implementation", "name the implementation's folder", body.origin)
        return None
    name = names[0]
    block = body.entries[name]
    if is_null(block):
        block = Block({}, block.origin)
    if not isinstance(block, Block):
        report("almost-instance", f"{where}.{name}", f"should be a mapping{_value(name, block)}", f"write {name}: {{…}}", block.origin)
        return None
    if not _NAME.fullmatch(name):
        message = f"an implementation cannot have this name ({shown(name)})"
        report("bad-name", f"{where}.{name}", message, f"name a folder below {kind}/", block.origin)
        return None
    return name, block


def _provider(name: str, node: Node, out: Blocks) -> bool:
    """Whether the block is, or was meant to be, a sandbox provider's."""
    if isinstance(node, Leaf) and node.value in SANDBOX_PROVIDERS:
        message = f"names a sandbox provider where its block belongs{_value(name, node)}"
        out.problems.append(Problem("unknown-provider", name, message, f"write {name}: {{{node.value}: {{}}}}", node.origin))
        out.faulty.add(name)
        return True
    if not isinstance(node, Block):
        return False
    keys = [key for key, child in node.entries.items() if key != _DEFAULT_METADATA and not is_null(child)]
    known = [key for key in keys if key in SANDBOX_PROVIDERS]
    if known:
        if len(keys) > 1:
            what = f"a sandbox provider block takes one provider ({', '.join(keys)})"
            hint = f"keep one, or write two blocks; to replace an inherited one write _delete_key: {keys[0]}"
            out.problems.append(Problem("two-providers", name, what, hint, node.origin))
            out.faulty.add(name)
        else:
            out.providers[name] = node
        return True
    if len(keys) == 1 and isinstance(node.entries[keys[0]], Block):
        near = closest(keys[0], SANDBOX_PROVIDERS)
        if near is not None or _DEFAULT_METADATA in node.entries or name == "sandbox":
            hint = did_you_mean(keys[0], SANDBOX_PROVIDERS)
            out.problems.append(
                Problem("unknown-provider", f"{name}.{keys[0]}", "is not a sandbox provider", hint, node.entries[keys[0]].origin)
            )
            out.faulty.add(name)
            return True
    return False


def _misspelt_kind(name: str, node: Block, kind_of: Callable[[str], Kind | None], out: Blocks) -> bool:
    """Whether the block was meant to be an instance."""
    if len(node.entries) == 1:
        (key,) = node.entries
        kind = kind_of(key)
        if kind is not None:
            message = f"is an implementation, and stands where its kind belongs{_value(key, node.entries[key])}"
            hint = f"write {kind}: {{{key}: …}}"
            out.problems.append(Problem("unknown-kind", f"{name}.{key}", message, hint, node.entries[key].origin))
            return True
    for key, child in node.entries.items():
        near = closest(key, KINDS, cutoff=0.75)
        inner = list(child.entries.values()) if isinstance(child, Block) else []
        launches = len(inner) == 1 and isinstance(inner[0], Block) and "entrypoint" in inner[0].entries
        if near is not None or launches:
            hint = did_you_mean(key, KINDS)
            out.problems.append(Problem("unknown-kind", f"{name}.{key}", "is not a kind of server", hint, child.origin))
            return True
    return False
