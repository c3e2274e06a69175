"""The command line."""

import argparse
import sys

from notes.store import Store


def main(argv=None):
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="notes")
    parser.add_argument("file")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("add").add_argument("text")
    commands.add_parser("done").add_argument("number", type=int)
    commands.add_parser("list")
    options = parser.parse_args(argv)
    store = Store(options.file)
    if options.command == "add":
        print(store.add(options.text).number)
    elif options.command == "done":
        try:
            store.finish(options.number)
        except KeyError:
            print(f"there is no note {options.number}", file=sys.stderr)
            return 1
    else:
        for note in store.open():
            print(f"{note.number}: {note.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
