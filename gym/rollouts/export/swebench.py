"""Predictions as SWE-bench's own harness reads them, one instance a line."""

import orjson

from gym.rollouts.export.rollout import Rollout, Unusable


def swebench_predictions(rollout: Rollout) -> bytes:
    """The prediction of a rollout. Raises Unusable."""
    instance, patch = rollout.row.get("instance_id"), rollout.row.get("model_patch")
    if not isinstance(instance, str) or not instance:
        raise Unusable("no instance_id")
    if not isinstance(patch, str):
        raise Unusable("no model_patch")
    if "model_patch_base64" in rollout.row:
        raise Unusable("a patch that is not UTF-8")
    name = rollout.response.get("model") or rollout.agent or "unknown"
    return orjson.dumps({"instance_id": instance, "model_name_or_path": str(name), "model_patch": patch})
