#!/bin/sh
# Open one issue for an alarm of `evalkit nightly`, with GitHub's command line (`gh auth login` first):
#
#     evalkit nightly runs/nightly.toml --on-alarm "sh docs/recipes/alarm_issue.sh you/your-repository"
#
# While an issue with the label is open, a further alarm is a comment on it. Try it:
#     EVALKIT_SUMMARY="a try" EVALKIT_SWEEP=nightly EVALKIT_RUN=runs/x sh docs/recipes/alarm_issue.sh you/your-repository
set -eu
repository="$1"
label="evalkit-alarm"
title="evalkit: $EVALKIT_SWEEP has an alarm"
body="$(printf '%s\n\nThe run: `%s`. What it found is in its page: `evalkit view %s`.\n' \
  "$EVALKIT_SUMMARY" "$EVALKIT_RUN" "$EVALKIT_SWEEP")"
gh label create "$label" --repo "$repository" --force --description "a regression that evalkit found" >/dev/null
open="$(gh issue list --repo "$repository" --state open --label "$label" --json number,title \
  --jq "map(select(.title == \"$title\")) | .[0].number // empty")"
if [ -n "$open" ]; then
  gh issue comment "$open" --repo "$repository" --body "$body"
else
  gh issue create --repo "$repository" --label "$label" --title "$title" --body "$body"
fi
