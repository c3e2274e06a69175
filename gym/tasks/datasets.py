"""Choosing one of a plan's data sets, and finding its file."""

from collections.abc import Sequence
from pathlib import Path

from gym.config.errors import UserError, closest
from gym.config.plan import DatasetBinding
from gym.config.roots import find_file


class DatasetError(UserError):
    """No data set, or not one, answers the request; the message is for the user."""


def choose_dataset(bindings: Sequence[DatasetBinding], name: str | None = None) -> DatasetBinding:
    """The data set called `name` (`<instance>/<name>` where that is not enough); without a name the only one, or the only example.

    Raises DatasetError that lists what there is.
    """
    if not bindings:
        raise DatasetError("the configuration declares no data set: give the rows with --input")
    listing = ", ".join(f"{item.instance}/{item.dataset.name} ({item.dataset.type})" for item in bindings)
    if name is not None:
        found = [item for item in bindings if name in (item.dataset.name, f"{item.instance}/{item.dataset.name}")]
        if not found:
            near = closest(name, [item.dataset.name for item in bindings])
            hint = f"did you mean {near!r}? " if near else ""
            raise DatasetError(f"there is no data set {name!r} — {hint}there are: {listing}")
        if len(found) > 1:
            raise DatasetError(f"the name {name!r} is not unique: use '<instance>/{name}' (there are: {listing})")
        return found[0]
    if len(bindings) == 1:
        return bindings[0]
    examples = [item for item in bindings if item.dataset.type == "example"]
    if len(examples) == 1:
        return examples[0]
    raise DatasetError(f"choose a data set with --dataset, or give the rows with --input (there are: {listing})")


def dataset_file(binding: DatasetBinding, roots: Sequence[Path]) -> Path:
    """Where the rows of a data set are, looked for below each of `roots`. Raises DatasetError."""
    relative = binding.dataset.jsonl_fpath.expanduser()
    found = find_file(relative, roots)
    if found is not None:
        return found
    script = binding.dataset.prepare_script
    hint = f": prepare it with {script}" if script else f" (looked below {', '.join(map(str, roots))})"
    raise DatasetError(f"the rows of data set {binding.dataset.name!r} are not there: {relative}{hint}")
