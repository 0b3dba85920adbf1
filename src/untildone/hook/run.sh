#!/bin/sh
# What hooks.json names: `sh run.sh EVENT`. Where nothing of ours lies in the folder, this is all that runs.
# It must never fail: whatever is wrong, Claude Code goes on as if we were not there.
event=${1:-}
project=${CLAUDE_PROJECT_DIR:-.}

# Inside a run of `untildone run` the outer loop decides.
[ -z "${UNTILDONE_RUN:-}" ] || exit 0

case $event in
    UserPromptExpansion) ;; # our own commands: `matcher` in hooks.json lets nothing else through
    *)
        [ -e "$project/.untildone/loop.md" ] || [ -e "$project/.stravinsky/continuation-loop.md" ] ||
            [ -e "$project/.multi-agent/autonomous-mode" ] ||
            { [ "$event" = UserPromptSubmit ] &&
                { [ -e "$project/.claude/todo_state.json" ] || [ -e "$project/.untildone/tasks.db" ]; }; } || exit 0
        ;;
esac

if ! command -v python3 >/dev/null 2>&1; then
    case $event in
        SessionStart | UserPromptExpansion)
            echo '{"systemMessage": "untildone: python3 is missing here: its loops do not work until it is installed"}'
            ;;
    esac
    exit 0
fi
here=${0%/*}
python3 -I -S "$here/main.py" "$event" || :
