"""Pieces of bash that the test scripts of several data sets are made of.

Invariant: what a row holds cannot end a piece early or be read as bash: names are quoted, and contents are
written byte for byte. What is run between the markers is each data set's own.
"""

import base64
import shlex
from collections.abc import Iterable

from gym.swe.patches import sections, touched
from gym.swe.profile import END, START

_REMOVED = (b"\ndeleted file mode ", b"\n+++ /dev/null")


def words(items: Iterable[str]) -> str:
    """Words of a command, quoted where they need it."""
    return " ".join(shlex.quote(item) for item in items)


def write_file(path: str, content: str) -> str:
    """Write a file, byte for byte. Its text is not to be seen in the script, so that it can hold anything, markers included."""
    return _with_input(f"base64 -d > {shlex.quote(path)}", content)


def apply_test_patch(base_commit: str, test_patch: str) -> str:
    """Put the files of the test patch back to the base commit, whatever became of them, and apply the test patch.

    A patch that does not fit ends the script with what git says of it, which the grader knows: the row is then
    masked, as nothing is shown about the model's patch. The sandbox is thrown away, so nothing is put back afterwards.
    """
    if not test_patch.strip():
        return ":"
    whole = test_patch if test_patch.endswith("\n") else test_patch + "\n"
    files = words(sorted(touched(test_patch.encode(errors="surrogateescape"))))
    restore = f'rm -rf -- "$name"; GIT_LITERAL_PATHSPECS=1 git checkout -q {base_commit} -- "$name" 2>/dev/null || :'
    # A pipe's code is its last command's: git apply's.
    return f"for name in {files}; do {restore}; done\n{_with_input('base64 -d | git apply --whitespace=nowarn - || exit 1', whole)}"


def marked(command: str) -> str:
    """A command between the markers; the script ends with its code."""
    return f"echo '{START}'\n{command}\ncode=$?\necho '{END}'\nexit $code"


def files_after(test_patch: str) -> list[str]:
    """The files of a test patch that are there once it is applied, in its order."""
    found = sections(test_patch.encode(errors="surrogateescape"))
    return [path for path, section in found if not any(mark in section.split(b"\n@@", 1)[0] for mark in _REMOVED)]


def _with_input(command: str, content: str) -> str:
    """A command with a here-document of base64, which has no letter that could end it."""
    encoded = base64.encodebytes(content.encode(errors="surrogateescape")).decode()
    return f"{{ {command}; }} <<'GYM_FILE'\n{encoded}GYM_FILE"
