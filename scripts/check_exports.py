"""Have trainers' own data readers read exports of `gym dataset export`, and compare what they make of them.

    python scripts/check_exports.py --model FOLDER [--trl PYTHON] [--verl PYTHON]

PYTHON is an interpreter of an environment with that package; FOLDER holds a small model's config and tokenizer.
Exits with 1 if a reader refuses an export or reads something else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments | string }}]{% endfor %}"
    "\n{% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
INPUT_IDS = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
MASK = [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]
LOG_PROBS = [-0.25, -0.5, 0.0, 0.0, -0.25, -0.5, -0.75]


def _rows() -> list[dict[str, Any]]:
    """A rollout with token ids and tool calls, and one without; their arguments have nothing in common."""
    first = {"prompt_token_ids": INPUT_IDS[:3], "generation_token_ids": INPUT_IDS[3:5], "generation_log_probs": LOG_PROBS[:2]}
    second = {"prompt_token_ids": INPUT_IDS[:7], "generation_token_ids": INPUT_IDS[7:], "generation_log_probs": LOG_PROBS[4:]}
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}', **first}
    seen = {"type": "function_call_output", "call_id": "c1", "output": "cold"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is cold."}]}
    other = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"at": [1, {"x": 2.5}], "city": 3}'}
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    base = {"responses_create_params": {"input": "How is it in Oslo?", "tools": [tool]}, "reward": 1.0, "_ng_rollout_id": "0-0"}
    with_ids = {**base, "response": {"model": "m", "output": [call, seen, {**said, **second}]}}
    return [with_ids, {**base, "response": {"model": "m", "output": [other, seen, said]}, "reward": None}]


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        sys.exit(f"{what}: expected {wanted!r}, got {found!r}")


def read_trl(folder: Path, model: str) -> str:
    """Runs where TRL is: the SFT trainer prepares both forms, and collates a batch."""
    import datasets
    import transformers
    import trl

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = TEMPLATE
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token

    def batch_of(name: str) -> Any:
        rows = datasets.load_dataset("json", data_files=str(folder / name), cache_dir=str(folder / "cache"))["train"]
        args = trl.SFTConfig(output_dir=str(folder / "out"), use_cpu=True, bf16=False, report_to=[], per_device_train_batch_size=len(rows))
        network = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(model))
        trainer = trl.SFTTrainer(model=network, args=args, train_dataset=rows, processing_class=tokenizer)
        return sorted(next(iter(trainer.get_train_dataloader()))["labels"].tolist()), trainer.train_dataset

    labels, _ = batch_of("trl-token-ids.jsonl")
    _expect("TRL's labels of token ids", labels, [[token if mask else -100 for token, mask in zip(INPUT_IDS, MASK, strict=True)]])
    labels, prepared = batch_of("trl.jsonl")
    texts = [tokenizer.decode(ids) for ids in prepared["input_ids"]]
    _expect("rows that TRL prepared", len(texts), 2)
    for text, wanted in zip(texts, ("{'city': 'Oslo'}", "{'at': [1, {'x': 2.5}], 'city': 3}"), strict=True):
        _expect(f"whether {wanted} stands in {text!r}", f"[weather {wanted}]" in text and "It is cold." in text, True)
    _expect("whether the prompt is left out of the loss", labels[0][0], -100)
    return f"trl {trl.__version__} with datasets {datasets.__version__}: SFTTrainer"


def read_verl(folder: Path, model: str) -> str:
    """Runs where verl is: its two data sets, and its own form of a rollout that has been made."""
    import datasets
    import transformers
    import verl
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
    from verl.utils.dataset.rl_dataset import RLHFDataset

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = TEMPLATE
    file = str(folder / "verl.parquet")
    settings = {"cache_dir": str(folder / "cache"), "max_prompt_length": 512, "filter_overlong_prompts_workers": 1}
    prompts = RLHFDataset(file, tokenizer, OmegaConf.create(settings))
    _expect(
        "verl's prompts", [prompts[n]["raw_prompt"] for n in range(len(prompts))], [[{"role": "user", "content": "How is it in Oslo?"}]] * 2
    )
    _expect("verl's reward model", prompts[0]["reward_model"], {"style": "rule", "ground_truth": ""})
    told = MultiTurnSFTDataset(file, tokenizer, OmegaConf.create({"max_length": 512, "ignore_input_ids_mismatch": True}))[0]
    trained = tokenizer.decode(told["input_ids"][told["loss_mask"] == 1])
    _expect(f"whether verl trains on the model's words alone ({trained!r})", "It is cold." in trained and "How is it" not in trained, True)
    row = datasets.load_dataset("parquet", data_files=file, cache_dir=settings["cache_dir"])["train"][0]
    fields = ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "reward_score", "num_turns")
    made = AgentLoopOutput(metrics=AgentLoopMetrics(), **{name: row[name] for name in fields}).as_dict()
    _expect("verl's tokens", made["prompts"].tolist() + made["responses"].tolist(), INPUT_IDS)
    _expect("verl's mask", made["response_mask"].tolist(), MASK[3:])
    _expect("verl's log probabilities", made["rollout_log_probs"].tolist(), LOG_PROBS)
    return f"verl {verl.__version__}: RLHFDataset, MultiTurnSFTDataset, AgentLoopOutput"


READERS = {"trl": read_trl, "verl": read_verl}


def _make(folder: Path) -> None:
    from gym.rollouts.export import ExportOptions, Format, export

    rows = folder / "rollouts.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in _rows()))
    export(ExportOptions(rows, folder / "trl.jsonl", Format.TRL))
    export(ExportOptions(rows, folder / "trl-token-ids.jsonl", Format.TRL, token_ids=True))
    export(ExportOptions(rows, folder / "verl.parquet", Format.VERL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="FOLDER")
    parser.add_argument("--read", nargs=2, metavar=("READER", "EXPORTS"), help=argparse.SUPPRESS)
    for name in READERS:
        parser.add_argument(f"--{name}", metavar="PYTHON", help=f"an interpreter that has {name}")
    given = parser.parse_args()
    if given.read is not None:
        print("ok:", READERS[given.read[0]](Path(given.read[1]), given.model))
        return
    chosen = {name: getattr(given, name) for name in READERS if getattr(given, name)}
    if not chosen:
        parser.error("give --trl or --verl")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        _make(Path(folder))
        for name, python in chosen.items():
            command = [python, __file__, "--model", given.model, "--read", name, folder]
            failed |= subprocess.run(command, check=False).returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
