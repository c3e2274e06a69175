"""What a note is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """One note."""

    number: int
    text: str
    done: bool = False

    def to_json(self):
        """The note as a mapping."""
        return {"number": self.number, "text": self.text, "done": self.done}

    @classmethod
    def from_json(cls, data):
        """The note that `to_json` wrote."""
        return cls(data["number"], data["text"], data["done"])
