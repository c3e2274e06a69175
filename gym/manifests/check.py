"""Whether manifests hold: what each says by itself, and whether it agrees with its config.

The config is the authority on the mirrored fields: a manifest that says otherwise is stale. Every
problem is a `Problem` with its position, as those of configs are. Nothing is started or changed,
no server's app is imported, and no network is touched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from gym.config import Examined
from gym.config.compose import display_path
from gym.config.errors import Problem, did_you_mean, shown
from gym.config.licenses import license_hint
from gym.config.plan import Origin
from gym.config.tree import Block, KeyPath, at, dotted
from gym.config.validate import validate
from gym.config.yamlfile import read_yaml
from gym.manifests.composition import Composition, composition_of, examine_offline
from gym.manifests.places import MANIFEST, Overlay, is_config, overlay_anywhere, overlay_at, overlay_of_manifest, overlays
from gym.manifests.schema import MIRRORED, Manifest, ManifestDataset

_LICENSING = ("internal", "proprietary", "unknown")


@dataclass
class Checked:
    """A manifest that was looked at. `manifest` is None if it cannot be read as one."""

    path: Path
    manifest: Manifest | None = None
    examined: Examined | None = None
    """Its config; None if that was not looked at."""
    composition: Composition | None = None
    """What the config says; None if that is unknown."""
    problems: list[Problem] = field(default_factory=list[Problem])
    stale: list[Problem] = field(default_factory=list[Problem])
    """What `--sync` can put right."""

    @property
    def holds(self) -> bool:
        """Whether nothing but mirrored fields is wrong."""
        return self.manifest is not None and all(problem.severity == "warning" for problem in self.problems)


def check_manifest(path: Path, cwd: Path) -> Checked:
    """Check one manifest and, where that is possible, its config."""
    here = Origin(display_path(path, cwd), 1, 1)
    checked = Checked(path)
    overlay = overlay_of_manifest(path)
    if overlay is None:
        message = f"manifests do not stand here ({shown(here.path)})"
        hint = f"it belongs beside its config, as benchmarks/…/<config's name without .yaml>/{MANIFEST}"
        checked.problems.append(Problem("manifest-place", "", message, hint, here))
        if path.name != MANIFEST:
            return checked
    block, found = read_yaml(path, here.path)
    checked.problems += found
    if block is None:
        return checked
    checked.manifest, found = validate(Manifest, (), block, ())
    checked.problems += found
    if checked.manifest is None:
        return checked
    checked.problems += _check_by_itself(checked.manifest, block)
    if overlay is None:
        return checked
    checked.problems += _check_place(checked.manifest, block, overlay)
    if not overlay.path.is_file():
        return checked
    checked.examined = examined = examine_offline(overlay)
    checked.problems += examined.problems
    if examined.plan is not None:
        checked.composition = composition_of(examined.plan)
        checked.problems += _check_against(checked.manifest, block, checked.composition)
        checked.stale = list(_differences(checked.manifest, block, checked.composition))
    return checked


def check_all(roots: Sequence[Path], cwd: Path) -> tuple[list[Checked], list[Problem], int]:
    """Every manifest below the roots, what is wrong with configs that have none, and how many of these there are."""
    known = overlays(roots)
    checked, problems, bare = _check_overlays(known, cwd)
    expected = {overlay.manifest for overlay in known}
    for folder in sorted({overlay.root / overlay.relative.parts[0] for overlay in known}):
        checked += [check_manifest(path, cwd) for path in sorted(folder.rglob(MANIFEST)) if path not in expected]
    return checked, problems, bare


def check_each(paths: Sequence[Path], cwd: Path) -> tuple[list[Checked], list[Problem], int]:
    """As `check_all`, of these files alone: manifests, and configs with their manifests. Other files are left out."""
    manifests = [path.absolute() for path in paths if path.name == MANIFEST]
    configs = [overlay_anywhere(path, cwd) for path in paths if path.name != MANIFEST and is_config(path)]
    checked, problems, bare = _check_overlays(configs, cwd)
    seen = {one.path for one in checked}
    return [*checked, *(check_manifest(path, cwd) for path in dict.fromkeys(manifests) if path not in seen)], problems, bare


def _check_overlays(known: Sequence[Overlay], cwd: Path) -> tuple[list[Checked], list[Problem], int]:
    checked: list[Checked] = []
    problems: list[Problem] = []
    for overlay in known:
        if overlay.manifest.is_file():
            checked.append(check_manifest(overlay.manifest, cwd))
            continue
        examined = examine_offline(overlay)
        problems += examined.problems
        if examined.plan is not None and examined.plan.datasets and overlay_at(overlay.path) is not None:
            origin = Origin(display_path(overlay.path, cwd), 1, 1)
            hint = f"write {display_path(overlay.manifest, cwd)}; see docs/manifests.md"
            problems.append(Problem("no-manifest", "", "declares data sets and has no manifest", hint, origin, "warning"))
    return checked, problems, len(known) - len(checked)


def _check_by_itself(manifest: Manifest, block: Block) -> Iterator[Problem]:
    if manifest.kind == "benchmark" and manifest.canonical_split is None:
        yield _missing("canonical_split", "a benchmark says which split its scores are told of", block)
    templated = manifest.prompt_source == "template"
    if manifest.kind == "benchmark" and templated and manifest.standard_prompt_config is None:
        yield _missing("standard_prompt_config", "scores of a benchmark whose prompt_source is template depend on it", block)
    if not templated and manifest.standard_prompt_config is not None:
        message = f"there is no template where prompt_source is {manifest.prompt_source}"
        yield _problem("wrong-value", ("standard_prompt_config",), message, "remove it", block)
    has_benchmark = any(dataset.type == "benchmark" for dataset in manifest.datasets)
    if has_benchmark is not (manifest.kind == "benchmark"):
        message = f"is {manifest.kind}, and its data sets {'hold a benchmark' if has_benchmark else 'hold none of type benchmark'}"
        yield _problem("wrong-value", ("kind",), message, f"write {'benchmark' if has_benchmark else 'environment'}", block)
    names = [dataset.name for dataset in manifest.datasets]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield _problem("wrong-value", ("datasets", index, "name"), f"is there twice ({name})", "give each data set its own name", block)
    hint = license_hint(manifest.licensing) if manifest.licensing not in _LICENSING else None
    if hint is not None:
        message = f"is not the name of a known licence ({shown(manifest.licensing)})"
        yield replace(_problem("unknown-license", ("licensing",), message, hint, block), severity="warning")


def _check_place(manifest: Manifest, block: Block, overlay: Overlay) -> Iterator[Problem]:
    if manifest.name != overlay.name:
        message = f"differs from what its path says ({shown(manifest.name)})"
        yield _problem("name-differs", ("name",), message, f"write {overlay.name}", block)
    meant = (overlay.manifest.parent / manifest.config_path).resolve()
    if not meant.is_file():
        siblings = [path.name for path in overlay.manifest.parent.glob("*.yaml") if path.name != MANIFEST]
        siblings += [f"../{path.name}" for path in overlay.manifest.parent.parent.glob("*.yaml")]
        hint = did_you_mean(manifest.config_path, siblings, otherwise=f"write {overlay.config_path}")
        yield _problem("file-missing", ("config_path",), f"there is no such config ({shown(manifest.config_path)})", hint, block)
    elif meant != overlay.path.resolve():
        message = f"is another config than the one that this manifest stands beside ({shown(manifest.config_path)})"
        yield _problem("manifest-place", ("config_path",), message, f"write {overlay.config_path}, or move the manifest", block)
    prompt = manifest.standard_prompt_config
    if prompt is not None and not (overlay.root / prompt).is_file():
        yield _problem("file-missing", ("standard_prompt_config",), f"there is no such file ({shown(prompt)})", "correct the path", block)


def _check_against(manifest: Manifest, block: Block, composition: Composition) -> Iterator[Problem]:
    if composition.domain is not None and composition.domain != manifest.domain:
        message = f"differs from the config ({manifest.domain} here, {composition.domain} there)"
        yield _problem("domain-differs", ("domain",), message, "correct one of the two", block)


def _differences(manifest: Manifest, block: Block, composition: Composition) -> Iterator[Problem]:
    """One problem for each mirrored value that is not as in the config."""
    for name in MIRRORED:
        for path, here, there in _unlike(_plain(getattr(manifest, name)), _plain(getattr(composition, name)), (name,)):
            message = f"differs from the config ({_value(here)} here, {_value(there)} there)"
            yield _problem("stale", path, message, "run gym env validate --manifest … --sync", block)


def _plain(value: Any) -> Any:
    return [entry.model_dump() if isinstance(entry, ManifestDataset) else entry for entry in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def _unlike(here: Any, there: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any, Any]]:
    """Where two pieces of plain data differ, as deep as they have the same shape."""
    if isinstance(here, dict) and isinstance(there, dict):
        ours, theirs = cast("dict[str, Any]", here), cast("dict[str, Any]", there)
        for key in dict.fromkeys([*theirs, *ours]):
            yield from _unlike(ours.get(key), theirs.get(key), (*path, key))
    elif isinstance(here, list) and isinstance(there, list) and _names(here) == _names(there):
        for index, (one, other) in enumerate(zip(cast("list[Any]", here), cast("list[Any]", there), strict=True)):
            yield from _unlike(one, other, (*path, index))
    elif here != there:
        yield path, here, there


def _names(entries: Any) -> list[Any]:
    return [entry.get("name") if isinstance(entry, dict) else entry for entry in entries]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    return shown(", ".join(map(str, _names(value))) if isinstance(value, list) else value)


def _problem(rule: str, path: KeyPath, message: str, hint: str, block: Block) -> Problem:
    """At the value, or at the nearest mapping that should hold it."""
    nodes = (at(block, path[:end]) for end in range(len(path), 0, -1))
    origin = next((node.origin for node in nodes if node is not None), block.origin)
    return Problem(rule, dotted(path), message, hint, origin)


def _missing(key: str, why: str, block: Block) -> Problem:
    return Problem("missing-key", key, f"is required: {why}", f"add {key}: …", block.origin)
