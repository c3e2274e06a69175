"""`--sync`: writes into a manifest what its config says of the mirrored fields.

Invariants: nothing is written unless everything else about the manifest holds, and what would be
written was read back first and says exactly what the config does; a file that agrees is not touched.
"""

from typing import Any

from gym.config.errors import Problem
from gym.config.tree import plain
from gym.config.yamlfile import parse_yaml
from gym.manifests.check import Checked
from gym.manifests.composition import Composition
from gym.manifests.edits import CannotEdit, edit
from gym.manifests.places import MANIFEST
from gym.manifests.schema import MIRRORED, Manifest
from gym.rollouts.files import write_atomically


def sync(checked: Checked) -> bool:
    """Rewrite the mirrored fields of a manifest that holds otherwise; returns whether it was changed. Raises OSError.

    Afterwards `checked` says what is still wrong: nothing, or why the file could not be changed in place.
    """
    if not checked.stale or not checked.holds or checked.composition is None or checked.manifest is None:
        return False
    written = checked.path.read_bytes()
    wanted = _wanted(checked.composition)
    try:
        text = edit(written.decode("utf-8"), wanted, list(Manifest.model_fields))
        if not _says(text, checked.manifest, checked.composition):
            raise CannotEdit("its YAML is of a kind that is not understood here")
    except CannotEdit as error:
        origin = checked.stale[0].origin
        checked.problems.append(Problem("stale", "", f"cannot be rewritten in place: {error}", "correct it by hand", origin))
        return False
    write_atomically(checked.path.resolve(), [text.encode("utf-8")])
    checked.stale = []
    return True


def _wanted(composition: Composition) -> dict[str, Any]:
    values = {name: getattr(composition, name) for name in MIRRORED}
    return {**values, "datasets": [dataset.model_dump() for dataset in composition.datasets]}


def _says(text: str, before: Manifest, composition: Composition) -> bool:
    """Whether the text says of the mirrored fields what the config does, and of all others what it said before."""
    block, problems = parse_yaml(text, MANIFEST)
    if block is None or problems:
        return False
    return Manifest.model_validate(plain(block)).model_dump() == {**before.model_dump(), **_wanted(composition)}
