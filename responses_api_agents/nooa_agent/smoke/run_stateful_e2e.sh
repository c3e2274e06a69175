#!/usr/bin/env bash
# Runs one counter task with a real model and an embedded agent of NOOA's, and checks what came of it: the reward that the server
# counted, the model's usage, the calls of the task's tools, the trajectory. No sandbox is used.
#
#   POLICY_BASE_URL=… POLICY_API_KEY=… POLICY_MODEL_NAME=… bash responses_api_agents/nooa_agent/smoke/run_stateful_e2e.sh [OUTPUT]
#
# The model answers at $POLICY_BASE_URL/responses; GYM_SMOKE_MODEL_TYPE names another model server than openai_model.
set -euo pipefail
cd "$(dirname "$0")/../../.."

for name in POLICY_BASE_URL POLICY_API_KEY POLICY_MODEL_NAME; do
  [ -n "${!name:-}" ] || { echo "run_stateful_e2e.sh: set $name" >&2; exit 2; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
output=${1:-$folder/rollouts.jsonl}
cat > "$folder/policy.yaml" <<'YAML'
policy_base_url: ${oc.env:POLICY_BASE_URL}
policy_api_key: ${oc.env:POLICY_API_KEY}
policy_model_name: ${oc.env:POLICY_MODEL_NAME}
YAML

gym eval run \
  --config resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt_nooa.yaml --config "$folder/policy.yaml" \
  --model-type "${GYM_SMOKE_MODEL_TYPE:-openai_model}" --env example_session_state_mgmt_environment_server \
  --input resources_servers/example_session_state_mgmt/data/example_nooa_tasks.jsonl \
  --output "$output" --limit 1 --concurrency 1 --overwrite

python responses_api_agents/nooa_agent/smoke/check_stateful.py "$output"
