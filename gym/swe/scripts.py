"""The shell scripts that are run in task sandboxes. Each is plain bash and git; values come in by environment.

Invariant: a script that could not do all of its work returns a code other than 0 and says why.
"""

import shlex
from collections.abc import Mapping

CHECK = r"""
[ -n "${BASH_VERSION:-}" ] || { echo 'commands are not run by bash: the image has none, or exec_shell names another shell'; exit 1; }
command -v git >/dev/null || { echo 'the image has no git'; exit 1; }
git config --global --get-all safe.directory 2>/dev/null | grep -qxF '*' || git config --global --add safe.directory '*' || :
cd -- "$GYM_WORKDIR" || exit 1
git rev-parse --verify 'HEAD^{commit}'
"""
"""Say which commit is checked out. It comes first in every sandbox: the repository may belong to another user than ours."""

PREPARE = r"""
set -eu
cd -- "$GYM_WORKDIR"
git config user.email agent@gym.invalid
git config user.name 'Gym agent'
if ! git diff --quiet --ignore-submodules HEAD --; then
  git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit -q -a -m 'Start from the state of the image'
fi
git rev-parse --verify 'HEAD^{commit}'
git ls-files -z --others | base64 -w 0
"""
"""Give commits an author, and tell the base commit and, in base64, what is not tracked already, ignored files included.

Changes that the image itself made to tracked files become a commit: they are no work of the agent's,
and a patch that repeated them would not apply to the fresh image.
"""

SCRUB = r"""
set -euo pipefail
cd -- "$GYM_WORKDIR"
base=$(git rev-parse --verify 'HEAD^{commit}')
dir=$(git rev-parse --absolute-git-dir)
[ ! -s "$dir/objects/info/alternates" ] || { echo 'the repository borrows objects from another one'; exit 1; }
rm -f -- "$dir"/*.lock
git update-ref --no-deref HEAD "$base"
git for-each-ref --format='delete %(refname)' | git update-ref --no-deref --stdin
git update-ref refs/heads/gym-task "$base"
git symbolic-ref HEAD refs/heads/gym-task
git reset -q
for remote in $(git remote); do git remote remove "$remote"; done
for branch in $(git config --name-only --get-regexp '^branch\.' | sed 's/^branch\.//; s/\.[^.]*$//' | sort -u); do
  git config --remove-section "branch.$branch" || true
done
for left in logs worktrees rr-cache refs/original refs/replace rebase-merge rebase-apply sequencer lost-found objects/info/commit-graphs; do
  rm -rf -- "${dir:?}/$left"
done
for left in FETCH_HEAD ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG AUTO_MERGE COMMIT_EDITMSG MERGE_MSG SQUASH_MSG \
  TAG_EDITMSG NOTES_EDITMSG info/refs objects/info/commit-graph; do
  rm -f -- "$dir/$left"
done
rm -f -- "$dir"/objects/pack/*.keep "$dir"/objects/pack/*.bitmap
git reflog expire --expire=now --expire-unreachable=now --all
[ "$(git for-each-ref --format='%(refname)')" = refs/heads/gym-task ] || { echo 'other refs are left'; exit 1; }
[ "$(git rev-parse HEAD)" = "$base" ] || { echo 'HEAD moved'; exit 1; }
git rev-list --objects HEAD | cut -d ' ' -f 1 | LC_ALL=C sort -u > "$GYM_OUT.kept"
[ -s "$GYM_OUT.kept" ] || { echo 'the history cannot be read'; exit 1; }
beyond() {
  git cat-file --batch-all-objects --batch-check='%(objectname)' | LC_ALL=C sort > "$GYM_OUT.all"
  LC_ALL=C comm -23 "$GYM_OUT.all" "$GYM_OUT.kept" | wc -l
}
left=$(beyond)
if [ "$left" -ne 0 ]; then  # a repository that holds nothing else needs no new pack, which is most of the work
  git -c gc.cruftPacks=false -c core.logAllRefUpdates=false repack -q -a -d --no-write-bitmap-index --window=0
  git prune --expire=now
  left=$(beyond)
fi
rm -f -- "$GYM_OUT.all" "$GYM_OUT.kept"
[ "$left" -eq 0 ] || { echo "$left objects from beyond the base are left"; exit 1; }
"""
"""Leave the history up to the base commit and nothing else: no other ref, tag, remote, log, message or object.

The work tree stays as it is.
"""

HIDE = r"""
set -eu
cd -- "$GYM_WORKDIR"
while IFS= read -r path; do
  [ -n "$path" ] || continue
  rm -rf -- "$path"
  [ ! -e "$path" ] && [ ! -L "$path" ] || { echo "cannot remove $path"; exit 1; }
  [ -z "$(git ls-tree -r HEAD -- ":(literal)$path" | head -n 1)" ] || { echo "$path can still be read from the history"; exit 1; }
done
"""
"""Remove the paths on stdin, one a line. What is tracked cannot be hidden: the base commit would still show it."""

NO_REPOSITORY = 3

_DIFF = r"""
# Nothing that stands in the agent's configuration or attributes may change what a patch looks like.
plain_git() { git -c core.fsmonitor=false -c core.fileMode=true -c core.autocrlf=false -c core.sparseCheckout=false "$@"; }
write_diff() {
  plain_git -c core.quotePath=true -c diff.relative=false -c diff.noprefix=false -c diff.mnemonicPrefix=false \
    diff --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames -O/dev/null --ignore-submodules=all \
    --diff-algorithm=default --unified=3 --inter-hunk-context=0 --src-prefix=a/ --dst-prefix=b/ "$@" -- . > "$GYM_OUT.diff"
}
set -eu
cd -- "$GYM_WORKDIR" || exit 3
git ls-tree -r "$GYM_BASE" >/dev/null || exit 3
export GIT_OPTIONAL_LOCKS=0 GIT_WORK_TREE="$PWD"
"""

CAPTURE_WORKTREE = (
    _DIFF
    + r"""
export GIT_INDEX_FILE="$GYM_OUT.index"
git read-tree "$GYM_BASE"
# Files that cannot be added, such as a repository without a commit, must not cost the rest.
plain_git -c advice.addEmbeddedRepo=false add --intent-to-add --ignore-errors -- . || echo 'some files could not be added' >&2
write_diff "$GYM_BASE"
"""
)
"""Write the difference between the base commit and the work tree, new files included, to `$GYM_OUT.diff`; 3: there is no repository.

It uses an index of its own, made from the base commit: what the agent staged, locked or marked as
unchanged in the real one has no part in it. Nor has what stands in its configuration.
"""

CAPTURE_COMMITTED = (
    _DIFF
    + r"""
best=$GYM_BASE best_name= best_descends=0 best_count=-1
consider() {
  descends=0; if git merge-base --is-ancestor "$GYM_BASE" "$2"; then descends=1; fi
  count=$(git rev-list --count "$GYM_BASE..$2") || return 0
  if [ $descends -gt $best_descends ] || { [ $descends -eq $best_descends ] && [ "$count" -gt $best_count ]; }; then
    best=$2 best_name=$1 best_descends=$descends best_count=$count
  fi
}
# HEAD comes first, so that it wins where nothing is further on.
if head=$(git rev-parse -q --verify 'HEAD^{commit}'); then consider "$(git symbolic-ref -q --short HEAD || echo HEAD)" "$head"; fi
git for-each-ref --format='%(objectname) %(refname:short)' refs/heads > "$GYM_OUT.heads"
while read -r commit name; do consider "$name" "$commit"; done < "$GYM_OUT.heads"
[ "$best_count" -ge 0 ] || best_count=0
dirty=no; [ -z "$(git status --porcelain 2>/dev/null | head -n 1)" ] || dirty=yes
printf '%s\n%s\n%s\n' "$best_count" "$dirty" "$best_name" > "$GYM_OUT.facts"
write_diff "$GYM_BASE" "$best"
"""
)
"""Write the difference between the base commit and the most advanced commit of HEAD and all local branches to `$GYM_OUT.diff`.

Descendants of the base come first, then who has more commits past it, then HEAD. `$GYM_OUT.facts` says: how many
commits, whether the work tree holds anything else, and the branch. 3: there is no repository.
"""

APPLY = r"""
cat > "$GYM_PATCH" || exit 3
cd -- "$GYM_WORKDIR" || exit 3
if git apply --verbose --whitespace=nowarn "$GYM_PATCH"; then exit 0; fi
if command -v patch >/dev/null 2>&1 && patch --batch --no-backup-if-mismatch --fuzz=5 -p1 -i "$GYM_PATCH"; then exit 0; fi
exit 1
"""
"""Apply the patch on stdin; 1 means that it does not fit."""

RUN_TESTS = r"""gym_script=$(cat); exec 2>&1 </dev/null; eval "$gym_script" """
"""Run the script on stdin. It is read whole before it runs and stands in no file, so that code under test cannot read its markers there."""

RUN_TESTS_APART = r"""gym_script=$(cat); exec </dev/null; eval "$gym_script" """
"""The same with two streams."""

PARSE = r"""
cd -- "$GYM_FOLDER" || exit 1
rm -f result
for python in python3 python; do
  command -v $python >/dev/null || continue
  $python parser.py stdout.log stderr.log result || exit 1
  exit 0
done
echo 'the image has no python to run the log parser with'
exit 1
"""
"""Run a log parser on two logs."""


def one_after_the_other(steps: Mapping[str, str]) -> str:
    """One script of several, each in a shell of its own. The first that fails ends it, and says on stderr by its name which it was."""
    # No `||` behind the parentheses: it would switch off `set -e` within them.
    parts = (f"({script}); code=$?; [ $code = 0 ] || {{ echo {shlex.quote(name)} >&2; exit $code; }}" for name, script in steps.items())
    return "\n".join(parts)
