"""The shell scripts that are run in task sandboxes. Each is plain bash and git; values come in by environment.

Invariant: a script that could not do all of its work returns a code other than 0 and says why.
"""

PREPARE = r"""
set -eu
cd "$GYM_WORKDIR"
git config --global --get-all safe.directory 2>/dev/null | grep -qx '\*' || git config --global --add safe.directory '*'
git config user.email agent@gym.invalid
git config user.name 'Gym agent'
git rev-parse --verify 'HEAD^{commit}' > "$GYM_OUT.base"
git ls-files -z --others --exclude-standard > "$GYM_OUT.untracked"
"""
"""Note the base commit and what is untracked already, and give commits an author."""

SCRUB = r"""
set -eu
cd "$GYM_WORKDIR"
base=$(git rev-parse --verify 'HEAD^{commit}')
git checkout -q --force --detach "$base"
git for-each-ref --format='delete %(refname)' | git update-ref --stdin
git checkout -q -b gym-task
for remote in $(git remote); do git remote remove "$remote"; done
dir=$(git rev-parse --absolute-git-dir)
rm -rf "$dir/logs" "$dir/worktrees" "$dir/rr-cache" "$dir/refs/original" "$dir/refs/replace" "$dir/shallow.lock"
rm -f "$dir"/FETCH_HEAD "$dir"/ORIG_HEAD "$dir"/MERGE_HEAD "$dir"/CHERRY_PICK_HEAD "$dir"/REVERT_HEAD "$dir"/AUTO_MERGE
[ ! -s "$dir/objects/info/alternates" ] || { echo 'the repository borrows objects from another one'; exit 1; }
rm -f "$dir"/objects/pack/*.keep "$dir"/objects/pack/*.bitmap
git -c gc.reflogExpire=now -c gc.reflogExpireUnreachable=now reflog expire --expire=now --all
git -c gc.cruftPacks=false repack -q -a -d --no-write-bitmap-index
git prune --expire=now
[ "$(git for-each-ref --format='%(refname)')" = refs/heads/gym-task ] || { echo 'other refs are left'; exit 1; }
[ "$(git rev-parse HEAD)" = "$base" ] || { echo 'HEAD moved'; exit 1; }
left=$(git cat-file --batch-all-objects --batch-check='%(objecttype) %(objectname)' | awk '$1 == "commit" || $1 == "tag" {print $2}' | sort)
kept=$(git rev-list HEAD | sort)
[ "$left" = "$kept" ] || { echo 'commits beyond the base are left'; exit 1; }
"""
"""Leave the history up to the base commit and nothing else: no other ref, tag, remote, log or object."""

HIDE = r"""
set -eu
cd "$GYM_WORKDIR"
while IFS= read -r path; do
  [ -n "$path" ] || continue
  rm -rf -- "$path"
  [ ! -e "$path" ] || { echo "cannot remove $path"; exit 1; }
done
"""
"""Remove the paths on stdin, one a line."""

CAPTURE = r"""
set -eu
cd "$GYM_WORKDIR"
export GIT_INDEX_FILE="$GYM_OUT.index" GIT_OPTIONAL_LOCKS=0
git read-tree "$GYM_BASE"
git -c core.fsmonitor=false add --intent-to-add -- .
git -c core.fsmonitor=false -c core.quotePath=true -c diff.noprefix=false -c diff.mnemonicPrefix=false \
  diff --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames --src-prefix=a/ --dst-prefix=b/ "$GYM_BASE" -- . > "$GYM_OUT.diff"
"""
"""Write the difference between the base commit and the work tree, new files included, to `$GYM_OUT.diff`.

It uses an index of its own, made from the base commit: what the agent staged, locked or marked as
unchanged in the real one has no part in it.
"""

APPLY = r"""
cd "$GYM_WORKDIR" || exit 3
if git apply --verbose --whitespace=nowarn "$GYM_PATCH"; then exit 0; fi
if command -v patch >/dev/null 2>&1 && patch --batch --fuzz=5 -p1 -i "$GYM_PATCH"; then exit 0; fi
exit 1
"""
"""Apply a patch; 1 means that it does not fit."""
