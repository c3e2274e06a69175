"""Ends a command's whole process tree from inside its sandbox, with nothing but a POSIX shell and /proc.

Every command, and every harness, gets a marker in its environment, which its children inherit however they detach
themselves. A process is part of the tree if it carries the marker or descends from one that
does. What outruns two kills forks faster than it dies: it is stopped first, so that it keeps its
places below the pids limit, and then killed. Only builtins of the shell are used, so that it works
in an image without procps and in a sandbox that can fork no more. It runs with the command's own
user and as root, never privileged: what it executes belongs to the sandbox, which may be hostile.
Leaves out a child that both dropped its environment and outlived its parents: it ends with the sandbox.
"""

MARKER = "GYM_EXEC_ID"

SWEEP = r"""
mark=$1; pass=0
while [ $pass -lt 60 ]; do
  pass=$((pass + 1)); tree=' '; rows=; running=' '; fresh=
  for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}; state=; parent=
    case $pid in 1 | $$) continue ;; esac
    { while IFS= read -r line; do
        case $line in State:*) state=${line#State:?} ;; PPid:*) parent=${line#PPid:?}; break ;; esac
      done <"$dir/status"; } 2>/dev/null
    case $state in '' | Z* | X*) continue ;; esac
    rows="$rows $pid:$parent"
    case $state in T*) ;; *) running="$running$pid " ;; esac
    { while IFS= read -r line || [ -n "$line" ]; do
        case $line in *"$mark"*) tree="$tree$pid "; break ;; esac
      done <"$dir/environ"; } 2>/dev/null
  done
  grown=1
  while [ $grown = 1 ]; do
    grown=0
    for row in $rows; do
      case $tree in *" ${row%:*} "*) continue ;; esac
      case $tree in *" ${row#*:} "*) tree="$tree${row%:*} "; grown=1 ;; esac
    done
  done
  [ "$tree" = ' ' ] && exit 0
  for pid in $tree; do
    case $running in *" $pid "*) fresh="$fresh $pid" ;; esac
  done
  if [ $pass -gt 2 ] && [ $((pass % 4)) != 0 ] && [ -n "$fresh" ]; then kill -STOP $fresh; else kill -9 $tree; fi 2>/dev/null
  [ $pass -gt 3 ] && sleep 0.1 2>/dev/null
done
exit 1
"""
"""Exit 0: a whole pass found nobody. Exit 1: somebody was still found after all passes."""


def sweep_argv(mark: str) -> list[str]:
    """The command that ends everything marked with `mark` (`NAME=value`)."""
    return ["/bin/sh", "-c", SWEEP, "sh", mark]
