"""Prompt templates: text files in which `{name}` stands for a field of the row.

Only the template is read for names: braces in what is filled in stay as they are. `{{` and `}}` are braces.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gym.config.errors import UserError, did_you_mean

_NAME = re.compile(r"\{\{|\}\}|\{(\w+)\}")


@dataclass(frozen=True)
class PromptTemplate:
    """A template, checked against the names that there are."""

    text: str

    @classmethod
    def read(cls, path: Path, names: tuple[str, ...]) -> "PromptTemplate":
        """The template in a file. Raises UserError if it cannot be read or uses another name than `names`."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"the prompt template {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        for match in _NAME.finditer(text):
            if match[1] is not None and match[1] not in names:
                raise UserError(f"the prompt template {path} uses {{{match[1]}}}, which no row has — {did_you_mean(match[1], names)}")
        return cls(text)

    def fill(self, values: Mapping[str, str]) -> str:
        """The prompt."""

        def value(match: re.Match[str]) -> str:
            return match[0][0] if match[1] is None else values[match[1]]

        return _NAME.sub(value, self.text).strip()
