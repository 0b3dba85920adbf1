#!/bin/sh
# What hooks.json names: `sh run.sh EVENT`. Where nothing of ours lies in the folder, this is all that runs.
# It must never fail: whatever is wrong, Claude Code goes on as if we were not there.
event=${1:-}
project=${CLAUDE_PROJECT_DIR:-.}

# Inside a run of `untildone run` the outer loop decides. But the mark alone frees no session that a loop holds: where
# there may be one, Python looks.
[ -z "${UNTILDONE_RUN:-}" ] || [ -e "$project/.untildone/loop.md" ] ||
    [ -e "$project/.stravinsky/continuation-loop.md" ] || [ -e "$project/.multi-agent/autonomous-mode" ] || exit 0

case $event in
    UserPromptExpansion) ;; # our own commands: `matcher` in hooks.json lets nothing else through
    *)
        [ -e "$project/.untildone/loop.md" ] || [ -e "$project/.stravinsky/continuation-loop.md" ] ||
            [ -e "$project/.multi-agent/autonomous-mode" ] ||
            { [ "$event" = UserPromptSubmit ] &&
                { [ -e "$project/.claude/todo_state.json" ] || [ -e "$project/.untildone/tasks.db" ] ||
                    [ -e "$project/.devteam/devteam.db" ]; }; } || exit 0
        ;;
esac

# One line for the user, where it is welcome and comes once.
tell() {
    case $event in
        SessionStart | UserPromptExpansion) echo "{\"systemMessage\": \"untildone: $1\"}" ;;
    esac
    exit 0
}

command -v python3 >/dev/null 2>&1 || tell 'python3 is missing here: its loops do not work until it is installed'
here=${0%/*}
python3 -I -S "$here/main.py" "$event" 2>/dev/null || # it is there and does not work, unless a signal ended it
    [ $? -gt 128 ] || tell 'python3 does not work here: its loops do not work until it does'
exit 0
