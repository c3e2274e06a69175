#!/usr/bin/env python3
"""Builds the images of the example tasks, from this clone and Debian's packages alone; see `task_builder`.

usage: build_task_images.py [--check] [--write-rows] [--force] [DATA_SET...]

Needs git and a Docker engine with the image of `build_base_image.sh`. Images that are up to date are left as they are.
Rows of `data/example.jsonl` must be what their parts give: after a change to a task, `--write-rows` writes them anew,
which needs no engine. `--check` runs each task's tests in fresh containers: without a patch no FAIL_TO_PASS test may
pass, with the gold patch all tests must.
"""

import argparse
import json
import sys
import time

from task_builder.check import check
from task_builder.data_sets.every import DATA_SETS
from task_builder.images import ROOT_IMAGE, BuildError, build, docker
from task_builder.task import load


def main() -> None:
    """Build what is asked, or everything."""
    known = {data_set.name: data_set for data_set in DATA_SETS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data_set", nargs="*", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--check", action="store_true", help="grade each task in fresh containers")
    parser.add_argument("--write-rows", action="store_true", help="write the example rows anew, and build nothing")
    parser.add_argument("--force", action="store_true", help="build even what is up to date")
    options = parser.parse_args()
    if unknown := sorted(set(options.data_set) - set(known)):
        parser.error(f"unknown data set {', '.join(unknown)} (known: {', '.join(known)})")
    chosen = [known[name] for name in options.data_set or known]
    started = time.monotonic()
    for data_set in chosen:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in data_set.rows())
        if options.write_rows:
            data_set.path.parent.mkdir(parents=True, exist_ok=True)
            data_set.path.write_text(text, newline="")
        elif not data_set.path.is_file() or data_set.path.read_bytes() != text.encode():
            raise BuildError(f"{data_set.file} is not what its parts give: run with --write-rows and look at the difference")
    if options.write_rows:
        return
    docker("image", "inspect", "-f", "{{.Id}}", ROOT_IMAGE)
    images = [data_set.image(task) for data_set in chosen for task in data_set.tasks]
    built = build(images, force=options.force)
    for name in sorted({task.name for data_set in chosen for task in data_set.tasks}) if options.check else []:
        print(check(load(name)), file=sys.stderr)
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"images": len({image.name for image in images}), "built": len(built), "seconds": seconds}))


if __name__ == "__main__":
    try:
        main()
    except (BuildError, RuntimeError) as error:
        sys.exit(f"build_task_images.py: {error}")
