"""Choosing a data set of a plan."""

from pathlib import Path

import pytest

from gym.config.plan import DatasetBinding
from gym.config.schema import Dataset
from gym.tasks.datasets import DatasetError, choose_dataset, dataset_file


def _bound(instance: str, name: str, kind: str = "train") -> DatasetBinding:
    return DatasetBinding(instance, Dataset.model_validate({"name": name, "type": kind, "jsonl_fpath": f"data/{name}.jsonl"}))


def test_by_name_or_the_only_one_or_the_example() -> None:
    one, two, example = _bound("a", "one"), _bound("a", "two"), _bound("a", "few", "example")
    assert choose_dataset([one]) is one
    assert choose_dataset([one, two, example]) is example
    assert choose_dataset([one, two], "two") is two
    with pytest.raises(DatasetError, match="choose a data set"):
        choose_dataset([one, two])
    with pytest.raises(DatasetError, match="did you mean 'two'"):
        choose_dataset([one, two], "twoo")
    with pytest.raises(DatasetError, match="declares no data set"):
        choose_dataset([])


def test_a_name_that_two_instances_use() -> None:
    first, second = _bound("a", "one"), _bound("b", "one")
    with pytest.raises(DatasetError, match="not unique"):
        choose_dataset([first, second], "one")
    assert choose_dataset([first, second], "b/one") is second


def test_its_file_is_looked_for_below_the_roots(tmp_path: Path) -> None:
    binding = _bound("a", "one")
    with pytest.raises(DatasetError, match="are not there"):
        dataset_file(binding, [tmp_path])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.jsonl").write_text("{}\n")
    assert dataset_file(binding, [tmp_path / "other", tmp_path]) == tmp_path / "data" / "one.jsonl"
