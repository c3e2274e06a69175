"""A process that compares answers with math-verify: one JSON pair a line on stdin, one JSON answer a line on stdout.

The policy writes what is parsed here, so a comparison may take any time and any memory: an alarm ends the
process after the given time, and its memory is limited. Whoever started it sees the end of its output.
"""

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

_MEMORY = 2 * 2**30
_READ = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())


def compare(expected: str, answer: str, boxed: bool) -> bool | None:
    """Whether they are equal; None if the expected answer cannot be read. An answer in no box is looked for in the text."""
    gold = _parsed(_box(expected))
    if all(isinstance(value, str) for value in gold):  # what it cannot read it gives back as text
        return None
    # The time limit is ours: the library's own cannot stop what is at work in C.
    return bool(verify(gold, _parsed(_box(answer) if boxed else answer), timeout_seconds=None, raise_on_error=True))


def _box(text: str) -> str:
    return f"\\boxed{{{text}}}"


def _parsed(text: str) -> list[Any]:
    return parse(text, _READ, parsing_timeout=None)


def main() -> None:
    """Answer until stdin ends. The argument is the most seconds that one pair may take."""
    seconds = int(sys.argv[1])
    # What the library prints must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    compare("1", "1", True)  # what is loaded and built at the first use
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        signal.alarm(seconds)
        try:
            reply: dict[str, Any] = {"equal": compare(**json.loads(line))}
        except Exception as error:  # anything that the policy's text brings about in the library
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        signal.alarm(0)
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
