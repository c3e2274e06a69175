"""`${…}` and `???`: from a tree of what was written to a tree of values.

Owns references to other keys (absolute, relative, nested), `${oc.env:NAME}` and its default. The rest
of OmegaConf's grammar (other resolvers, escapes) is handed to OmegaConf, which is imported only then:
it costs more time than a whole validation. Two differences on purpose: a default of `oc.env` is text as
written (`1.10` stays `1.10`), and a value that comes out of the environment is never read as `${…}` again.
Only what is asked for is resolved, so a template may hold `???` or name variables that are not set.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gym.config.errors import Problem, did_you_mean, shown
from gym.config.masking import is_secret_key
from gym.config.plan import Origin
from gym.config.roots import ENV_FILE
from gym.config.schema import Settings
from gym.config.tree import MISSING, Block, Items, KeyPath, Leaf, Node, dotted, from_plain, is_missing, parse_path, plain, written_at

_NODE = re.compile(r"(?P<dots>\.*)(?P<path>[A-Za-z_][\w-]*(?:\.[\w-]+|\[[\w-]+\])*)")
_ENV = re.compile(r"\s*oc\.env\s*:\s*(?P<name>[A-Za-z_]\w*)\s*(?P<comma>,)?")
_QUOTED = re.compile(r"\"[^\"\\$]*\"|'[^'\\$]*'")
_ENVIRONMENT = Origin("environment")
_OTHER_TOOLS = re.compile(r"\$\{\s*(?:env|ENV|os\.environ)[:.]\s*([A-Za-z_]\w*)\s*\}")
_USES = re.compile(r"\$\{\s*([A-Za-z_][\w-]*)")


class _Failed(Exception):
    """A value that cannot be resolved."""

    def __init__(self, rule: str, message: str, hint: str, lacks: str = "") -> None:
        super().__init__(message)
        self.rule, self.message, self.hint, self.lacks = rule, message, hint, lacks
        self.path: KeyPath | None = None
        """The value that is really at fault, where it is another one."""


class _Beyond(Exception):
    """Grammar that is left to OmegaConf."""


@dataclass(frozen=True)
class _Expression:
    """What stands between `${` and `}`."""

    parts: "tuple[str | _Expression, ...]"


def uses(text: str) -> list[str]:
    """The top-level keys that a text's interpolations start from."""
    return _USES.findall(text)


class Interpolator:
    """Resolves nodes of one tree; gathers problems, and the paths that have no value because of one."""

    def __init__(self, root: Block, env: Mapping[str, str]) -> None:
        self._root = root
        self._env = env
        self._done: dict[KeyPath, Node | _Failed] = {}
        self._open: list[KeyPath] = []
        self._failures: list[tuple[KeyPath, KeyPath, Problem]] = []
        self.broken: set[KeyPath] = set()

    @property
    def problems(self) -> list[Problem]:
        """One problem for each value at fault: those that only refer to it are not listed beside it."""
        own = {culprit for culprit, path, _ in self._failures if culprit == path}
        return list(dict.fromkeys(problem for culprit, path, problem in self._failures if culprit == path or culprit not in own))

    def resolve(self, path: KeyPath, node: Node) -> Node:
        """The node with every value in place; a leaf that cannot be resolved stays as `???` and is listed in `broken`."""
        if isinstance(node, Block):
            return replace(node, entries={key: self.resolve((*path, key), child) for key, child in node.entries.items()})
        if isinstance(node, Items):
            return replace(node, children=tuple(self.resolve((*path, index), child) for index, child in enumerate(node.children)))
        try:
            return self._leaf(path, node)
        except _Failed as failure:
            self.broken.add(path)
            problem = Problem(failure.rule, dotted(path), failure.message, failure.hint, node.origin, lacks=failure.lacks)
            self._failures.append((failure.path or path, path, problem))
            return replace(node, value=MISSING)

    def _leaf(self, path: KeyPath, node: Leaf) -> Node:
        if is_missing(node):
            hint = f"set it with {_override(path)}=VALUE" if not any(isinstance(part, int) for part in path) else "write it here"
            failure = _Failed("missing-value", "a value must be given here (???)", hint, dotted(path))
            failure.path = path
            raise failure
        if not isinstance(node.value, str) or "${" not in node.value:
            return node
        done = self._done.get(path)
        if done is None:
            if path in self._open:
                circle = " -> ".join(dotted(member) for member in [*self._open[self._open.index(path) :], path])
                raise _Failed("interpolation-cycle", f"values refer to each other in a circle ({circle})", "write one of them out")
            self._open.append(path)
            try:
                done = self._evaluate(path, node, node.value)
            except _Failed as failure:
                done = failure
            finally:
                self._open.pop()
            self._done[path] = done
        if isinstance(done, _Failed):
            done.path = done.path or path
            raise done
        return done

    def _evaluate(self, path: KeyPath, node: Leaf, text: str) -> Node:
        try:
            parts = _parse(text)
            if len(parts) == 1 and isinstance(parts[0], _Expression):
                found = self._expression(path, parts[0])
                placed = replace(found, origin=node.origin, history=node.history)
                if isinstance(placed, Leaf) and isinstance(found, Leaf) and found.origin != _ENVIRONMENT:
                    return replace(placed, source=written_at(found))
                return placed
            return replace(node, value=self._text(path, parts))
        except _Beyond:
            return from_plain(self._omegaconf(path, text), node.origin)

    def _text(self, path: KeyPath, parts: "tuple[str | _Expression, ...]") -> str:
        pieces: list[str] = []
        for part in parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            found = self._expression(path, part)
            if not isinstance(found, Leaf):
                raise _Failed("interpolation", "a list or a mapping cannot stand inside a text", "refer to one of its values")
            pieces.append(str(found.value))
        return "".join(pieces)

    def _expression(self, path: KeyPath, expression: _Expression) -> Node:
        parts = expression.parts
        head = parts[0] if parts and isinstance(parts[0], str) else ""
        env = _ENV.match(head)
        if env is not None:
            return self._environment(path, env, (head[env.end() :], *parts[1:]))
        if any(isinstance(part, str) and (":" in part or "," in part) for part in parts):
            raise _Beyond
        match = _NODE.fullmatch(self._text(path, parts).strip())
        if match is None:
            raise _Beyond
        return self._look_up(path, match["dots"], match["path"])

    def _environment(self, path: KeyPath, env: re.Match[str], rest: "tuple[str | _Expression, ...]") -> Leaf:
        name, here = env["name"], _ENVIRONMENT
        literal = rest[0].strip() if len(rest) == 1 and isinstance(rest[0], str) else None
        if env["comma"] is None:
            if literal != "":
                raise _Beyond
            if name not in self._env:
                hint = f"export {name}=…, or set the value with {_override(path)}=VALUE"
                raise _Failed("missing-environment", f"the environment variable {name} is not set", hint)
            return Leaf(self._env[name], here)
        if any(isinstance(part, str) and (set(part) & set("\\[]{},") or ("'" in part or '"' in part)) for part in rest):
            if literal is None or not _QUOTED.fullmatch(literal):
                raise _Beyond
            literal = literal[1:-1]
            return Leaf(self._env.get(name, literal), here)
        default = self._text(path, rest).strip()
        if name in self._env:
            return Leaf(self._env[name], here)
        if literal is not None and literal.lower() == "null":
            return Leaf(None, here)
        only = [part for part in rest if not (isinstance(part, str) and not part.strip())]
        if len(only) == 1 and isinstance(only[0], _Expression):
            inner = self._expression(path, only[0])
            if isinstance(inner, Leaf) and inner.value is None:
                return Leaf(None, here)
        return Leaf(default, here)

    def _look_up(self, path: KeyPath, dots: str, text: str) -> Node:
        base: KeyPath = path[: max(0, len(path) - len(dots))] if dots else ()
        if len(dots) > len(path):
            raise _Failed("interpolation", f"refers above the top of the configuration ({dots}{text})", "remove a dot")
        target = (*base, *parse_path(text))
        node: Node = self._root
        for index, part in enumerate(target):
            if isinstance(node, Leaf):
                node = self._leaf(target[:index], node)
            child = _child(node, part)
            if child is None:
                known = list(node.entries) if isinstance(node, Block) else []
                if len(target) == 1 and str(part) in Settings.model_fields:
                    near = _set_it(str(part))
                elif len(target) == 1 and str(part).isupper():
                    near = f"for an environment variable write ${{oc.env:{part}}}"
                else:
                    plus = "" if str(target[0]) in Settings.model_fields else "+"
                    near = did_you_mean(str(part), known, otherwise=f"set it with {plus}{_override(target)}=VALUE")
                raise _Failed("interpolation", f"refers to '{dotted(target)}', which is not set", near, dotted(target))
            node = child
        return self._leaf(target, node) if isinstance(node, Leaf) else self._container(target, node)

    def _container(self, target: KeyPath, node: Node) -> Node:
        if target in self._open:
            raise _Failed("interpolation-cycle", f"'{dotted(target)}' contains itself", "write one of the values out")
        self._open.append(target)
        try:
            return self._resolved_or_raise(target, node)
        finally:
            self._open.pop()

    def _resolved_or_raise(self, path: KeyPath, node: Node) -> Node:
        if isinstance(node, Block):
            return replace(node, entries={key: self._resolved_or_raise((*path, key), child) for key, child in node.entries.items()})
        if isinstance(node, Items):
            children = tuple(self._resolved_or_raise((*path, index), child) for index, child in enumerate(node.children))
            return replace(node, children=children)
        return self._leaf(path, node)

    def _omegaconf(self, path: KeyPath, text: str) -> Any:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        from gym.config.omegaconf_env import environment_resolver

        try:
            with environment_resolver(self._env):
                config: Any = OmegaConf.create(plain(self._root))
                value: Any = config
                for part in path:
                    value = value[part]
                return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except (OmegaConfBaseException, KeyError, ValueError, TypeError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            other = _OTHER_TOOLS.search(text)
            hint = f"write ${{oc.env:{other[1]}}}" if other is not None else "correct the ${…} expression"
            raise _Failed("interpolation", f"cannot be resolved ({shown(text)}): {lines[0]}", hint) from None


def _child(node: Node, part: str | int) -> Node | None:
    if isinstance(node, Block):
        return node.entries.get(str(part))
    if isinstance(node, Items) and str(part).isdigit() and int(part) < len(node.children):
        return node.children[int(part)]
    return None


def _set_it(setting: str) -> str:
    """How to give a top-level setting; for a secret the file comes first, since others can read a command line."""
    if is_secret_key(setting):
        return f"write it into {ENV_FILE}, or set it with {setting}=VALUE"
    return f"set it with {setting}=VALUE, or in {ENV_FILE}"


def _override(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)


def _parse(text: str) -> "tuple[str | _Expression, ...]":
    if "\\${" in text:
        raise _Beyond
    parts, end = _parse_until(text, 0, nested=False)
    assert end == len(text)
    return parts


def _parse_until(text: str, start: int, *, nested: bool) -> "tuple[tuple[str | _Expression, ...], int]":
    parts: list[str | _Expression] = []
    literal = ""
    index = start
    while index < len(text):
        if text.startswith("${", index):
            if literal:
                parts.append(literal)
                literal = ""
            inner, index = _parse_until(text, index + 2, nested=True)
            parts.append(_Expression(inner))
        elif nested and text[index] == "}":
            return tuple([*parts, literal] if literal else parts), index + 1
        else:
            literal += text[index]
            index += 1
    if nested:
        raise _Failed("interpolation", f"'${{' without its '}}' ({shown(text)})", "close it")
    return tuple([*parts, literal] if literal else parts), index
