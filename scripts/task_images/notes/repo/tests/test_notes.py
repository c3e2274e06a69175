import pytest
from notes.__main__ import main
from notes.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "notes.json"


def test_notes_last(path):
    Store(path).add("one")
    assert [note.text for note in Store(path).open()] == ["one"]


def test_numbers_are_not_used_again(path):
    store = Store(path)
    store.add("one")
    store.finish(1)
    assert store.add("two").number == 2
    assert [note.number for note in store.open()] == [2]


def test_no_such_note(path, capsys):
    assert main([str(path), "done", "3"]) == 1
    assert capsys.readouterr().err == "there is no note 3\n"


def test_list(path, capsys):
    main([str(path), "add", "Buy milk"])
    main([str(path), "list"])
    assert capsys.readouterr().out == "1\n1: Buy milk\n"
