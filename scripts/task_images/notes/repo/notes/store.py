"""Notes in a JSON file."""

import json
from dataclasses import replace
from pathlib import Path

from notes.model import Note


class Store:
    """All notes of a file; every change is written at once."""

    def __init__(self, path):
        self.path = Path(path)
        self.notes = [Note.from_json(data) for data in json.loads(self.path.read_text())] if self.path.exists() else []

    def add(self, text):
        """Append a note."""
        note = Note(max((note.number for note in self.notes), default=0) + 1, text)
        self.notes.append(note)
        self._write()
        return note

    def finish(self, number):
        """Mark a note as done. Raises KeyError if there is none with this number."""
        for index, note in enumerate(self.notes):
            if note.number == number:
                self.notes[index] = replace(note, done=True)
                self._write()
                return
        raise KeyError(number)

    def open(self):
        """The notes that are not done."""
        return [note for note in self.notes if not note.done]

    def _write(self):
        self.path.write_text(json.dumps([note.to_json() for note in self.notes]))
