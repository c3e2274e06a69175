#!/usr/bin/env bash
# Runs the main job: episodes through all four kinds of server, with a model that needs no key and no network.
#
#   scripts/demo.sh [OUTPUT]     rollouts go to OUTPUT (default: results/demo/rollouts.jsonl)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
sync_environment

output=${1:-results/demo/rollouts.jsonl}
gym eval run \
  --config resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml \
  --model-type scripted_model --num-repeats 3 --output "$output" --overwrite

# What stands in the file: one verified rollout a line.
python - "$output" <<'EOF'
import json
import sys

print(f"{'rollout':<10}{'reward':<8}{'calls':<46}final count")
for line in open(sys.argv[1]):
    row = json.loads(line)
    calls = [item["name"] + item["arguments"] for item in row["response"]["output"] if item["type"] == "function_call"]
    print(f"{row['_ng_rollout_id']:<10}{row['reward']:<8}{', '.join(c.replace('_counter', '') for c in calls[:2]):<46}{row['final_count']}")
EOF
