"""Training rows: which chain is delivered, what is masked, and that nothing is delivered that no engine gave."""

import copy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym.models.calls import CallNotes, ModelCall, TokenIds
from gym.models.tokens import TOKEN_FIELDS, build_forest, check_contiguous, training_of
from gym.protocol.responses import Item

SYSTEM = {"role": "system", "content": "you act"}


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def says(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}


def asks(number: int, name: str = "look") -> Item:
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name, "arguments": f'{{"n": {number}}}'}


def answer_to(item: Item, text: str = "seen") -> Item:
    return {"type": "function_call_output", "call_id": item["call_id"], "output": text}


class Engine:
    """Turns items into tokens, a letter each, and records calls."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []

    @staticmethod
    def spell(items: list[Item], shift: int = 0) -> list[int]:
        tokens: list[int] = []
        for item in items:
            content = item.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            text = "".join(str(part["text"]) for part in parts) if content is not None else str(item.get("output") or item.get("arguments"))
            tokens += [1, *(shift + 10 + ord(letter) for letter in text), 2]
        return tokens

    def call(
        self, history: list[Item], reply: list[Item], *, complete: bool = True, tokens: bool = True, respelt: int = 0, prompt: Any = None
    ) -> ModelCall:
        """One call; `respelt` spells the history's last item of the model in other tokens."""
        ids = None
        if tokens:
            generation = self.spell(reply)
            told = prompt if prompt is not None else self.prompt(history, respelt)
            ids = TokenIds(told, generation, [-0.5 - 0.001 * place for place in range(len(generation))])
        number = len(self.calls)
        call = ModelCall(
            f"c{number}",
            number,
            "responses",
            False,
            {"input": list(history)},
            {"id": f"resp_{number}", "output": reply} if complete else None,
            200 if complete else None,
            complete,
            notes=CallNotes(tokens=ids),
        )
        self.calls.append(call)
        return call

    def prompt(self, history: list[Item], respelt: int) -> list[int]:
        own = [place for place, item in enumerate(history) if item.get("role") == "assistant" or item.get("type") == "function_call"]
        changed = own[-1] if respelt and own else None
        return [token for place, item in enumerate(history) for token in self.spell([item], respelt if place == changed else 0)]


def answered(reply: list[Item], **more: Any) -> dict[str, Any]:
    """The agent's response, with ids of its own."""
    output = [{**copy.deepcopy(item), "id": f"mine_{place}"} for place, item in enumerate(reply)]
    return {"id": "agent", "output": output, **more}


def tool_loop(engine: Engine, steps: int) -> tuple[list[Item], list[Item]]:
    """A loop of `steps` calls of which the last says something: the history before it, and what it said."""
    history = [SYSTEM, user("go")]
    for number in range(steps - 1):
        call = asks(number)
        engine.call(history, [call])
        history = [*history, call, answer_to(call)]
    engine.call(history, [says("done")])
    return history, [says("done")]


def delivered(items: list[Item]) -> list[list[int]]:
    return [item["generation_token_ids"] for item in items if "generation_token_ids" in item]


def test_a_tool_loop_is_one_chain_with_what_the_environment_said_in_between() -> None:
    engine = Engine()
    _, last = tool_loop(engine, 3)
    training = training_of(engine.calls, answered(last))
    assert training.masked_reason is None
    assert training.items is not None
    assert check_contiguous(training.items) is None
    assert [item.get("type", "message") for item in training.items] == [
        "function_call",
        "function_call_output",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert delivered(training.items) == [call.notes.tokens.generation for call in engine.calls if call.notes.tokens]
    assert training.items[0]["prompt_token_ids"] == Engine.spell([SYSTEM, user("go")])
    generated = sum(map(len, delivered(training.items)))
    assert training.report == {
        "n_calls": 3,
        "n_calls_with_tokens": 3,
        "n_repeated_calls": 0,
        "chains": [{"calls": 3, "generated_tokens": generated, "delivered": True}],
        "generated_tokens": generated,
        "delivered_tokens": generated,
        "delivered_fraction": 1.0,
        "masked_reason": None,
        "breaks": [],
    }


def test_tokens_stand_on_the_last_item_of_a_reply_only() -> None:
    engine = Engine()
    reply: list[Item] = [{"type": "reasoning", "summary": [], "content": [{"text": "hm"}]}, says("look"), asks(0), asks(1)]
    reply[1]["prompt_token_ids"] = [9]  # a server that shows ids of its own does not double them
    engine.call([user("go")], reply)
    items = training_of(engine.calls, answered(reply)).items
    assert items is not None
    assert [[name for name in TOKEN_FIELDS if name in item] for item in items] == [[], [], [], list(TOKEN_FIELDS)]
    assert "prompt_token_ids" in reply[1], "what was recorded is left as it was"


def test_a_retried_call_is_neither_delivered_nor_counted_twice() -> None:
    engine = Engine()
    call = asks(0)
    again = {**asks(0), "call_id": "call_again"}
    engine.call([user("go")], [call])
    engine.call([user("go")], [again])
    engine.call([user("go"), again, answer_to(again)], [says("done")])
    training = training_of(engine.calls, answered([says("done")]))
    assert training.items is not None
    assert [item.get("call_id") for item in training.items] == ["call_again", "call_again", None], "the later one counts"
    assert training.masked_reason is None
    assert training.report["n_calls_with_tokens"] == 3
    assert training.report["n_repeated_calls"] == 1
    assert training.report["delivered_fraction"] == 1.0
    assert [chain["calls"] for chain in training.report["chains"]] == [2]
    named = training_of(engine.calls[:2], {"id": "resp_0", "output": [call]})
    assert named.items is not None, "the earlier of two equal calls stands for the same tokens"


def test_a_retry_with_another_answer_is_a_chain_that_is_not_delivered() -> None:
    engine = Engine()
    engine.call([user("go")], [asks(7)])
    engine.call([user("go")], [asks(8)])
    engine.call([user("go"), asks(8), answer_to(asks(8))], [says("done")])
    training = training_of(engine.calls, answered([says("done")]))
    assert training.masked_reason is None
    assert [(chain["calls"], chain["delivered"]) for chain in training.report["chains"]] == [(2, True), (1, False)]
    assert 0 < training.report["delivered_fraction"] < 1


@pytest.mark.parametrize("side", [[SYSTEM, user("title?")], [user("go")]])
def test_side_calls_are_chains_of_their_own(side: list[Item]) -> None:
    engine = Engine()
    engine.call(side, [says("a title")])
    _, last = tool_loop(engine, 2)
    training = training_of(engine.calls, answered(last))
    assert training.masked_reason is None
    assert [chain["delivered"] for chain in training.report["chains"]] == [True, False]
    assert training.items is not None
    assert len(delivered(training.items)) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda history: [*history[:2], asks(5), *history[3:]], "history_edited"),  # the model's own words
        (lambda history: [*history[:3], answer_to(history[2], "cut"), *history[4:]], "history_edited"),  # a result
        (lambda history: [user("be brief"), *history[1:]], "history_edited"),
        (lambda history: [SYSTEM, user("so far"), *history[4:]], "history_edited"),  # the beginning is gone
    ],
)
def test_an_edited_history_is_cut_and_masked(change: Any, reason: str) -> None:
    engine = Engine()
    history, _ = tool_loop(engine, 3)
    edited = change(history)
    engine.call(edited, [asks(9)])
    engine.call([*edited, asks(9), answer_to(asks(9))], [says("over")])
    training = training_of(engine.calls, answered([says("over")]))
    assert training.masked_reason == reason
    assert training.report["breaks"] == [{"call": 3, "reason": reason}]
    assert training.items is not None
    assert check_contiguous(training.items) is None
    assert delivered(training.items) == [call.notes.tokens.generation for call in engine.calls[3:] if call.notes.tokens]


def test_a_history_that_is_tokenised_anew_is_told_from_an_edited_one() -> None:
    engine = Engine()
    history, last = tool_loop(engine, 3)
    engine.call([*history, *last, user("more")], [says("more")], respelt=1000)
    training = training_of(engine.calls, answered([says("more")]))
    assert training.masked_reason == "retokenized"
    assert training.items is not None
    assert delivered(training.items) == [Engine.spell([says("more")])], "what came before the break is not delivered"
    assert [(chain["calls"], chain["delivered"]) for chain in training.report["chains"]] == [(1, True), (3, False)]


def test_a_break_in_a_side_chain_masks_nothing() -> None:
    engine = Engine()
    other = [user("sub"), says("one"), user("go on")]
    engine.call(other[:1], [says("one")])
    engine.call(other, [says("two")], respelt=1000)
    _, last = tool_loop(engine, 2)
    training = training_of(engine.calls, answered(last))
    assert training.masked_reason is None
    assert training.report["breaks"] == [{"call": 1, "reason": "retokenized"}]


def test_turns_of_the_model_that_came_with_the_task_break_nothing() -> None:
    engine = Engine()
    engine.call([user("hi"), says("hello"), user("go")], [says("done")])
    training = training_of(engine.calls, answered([says("done")]))
    assert training.masked_reason is None


def test_an_incomplete_call_that_was_asked_again_is_left_out() -> None:
    engine = Engine()
    engine.call([user("go")], [asks(0)], complete=False)
    _, last = tool_loop(engine, 2)
    training = training_of(engine.calls, answered(last))
    assert training.masked_reason is None
    assert training.report["n_calls"] == 3
    assert training.report["n_calls_with_tokens"] == 2
    assert training.report["delivered_fraction"] == 1.0


def test_an_incomplete_call_that_the_chain_needs_masks_it() -> None:
    engine = Engine()
    engine.call([user("go")], [asks(0)])
    history = [user("go"), asks(0), answer_to(asks(0))]
    engine.call(history, [says("half of")], complete=False)
    engine.call([*history, says("half"), user("go on")], [says("the rest")])
    training = training_of(engine.calls, answered([says("the rest")]))
    assert training.masked_reason == "incomplete_call"
    assert training.items is not None
    assert delivered(training.items) == [Engine.spell([says("the rest")])]


def test_a_final_answer_that_was_cut_is_never_delivered() -> None:
    engine = Engine()
    engine.call([user("go")], [asks(0)])
    cut = engine.call([user("go"), asks(0), answer_to(asks(0))], [says("half")], complete=False)
    cut.response = {"id": "resp_1", "output": [says("half")]}
    training = training_of(engine.calls, answered([says("half")]))
    assert training.masked_reason == "incomplete_call"
    assert training.items is None
    assert training.report["delivered_fraction"] == 0.0


def test_a_call_without_token_ids_that_the_chain_needs_masks_it() -> None:
    engine = Engine()
    engine.call([user("go")], [asks(0)], tokens=False)
    engine.call([user("go"), asks(0), answer_to(asks(0))], [says("done")])
    assert training_of(engine.calls, answered([says("done")])).masked_reason == "no_token_ids"


def test_without_any_token_ids_there_is_no_training_row() -> None:
    engine = Engine()
    engine.call([user("go")], [says("done")], tokens=False)
    for calls in ([], engine.calls):
        training = training_of(calls, answered([says("done")]))
        assert training.items is None
        assert training.masked_reason == "no_token_ids"
        assert training.report["delivered_fraction"] == 0.0


@pytest.mark.parametrize("response", [None, answered([says("something else")]), answered([]), {"id": "resp_x", "output": None}])
def test_an_answer_that_no_call_made(response: dict[str, Any] | None) -> None:
    engine = Engine()
    tool_loop(engine, 2)
    training = training_of(engine.calls, response)
    assert training.items is None
    assert training.masked_reason == "no_final_call"


def test_the_final_call_is_found_by_what_was_said_and_by_id_where_that_leaves_a_choice() -> None:
    engine = Engine()
    for question in ("a", "b", "c"):
        engine.call([user(question)], [says("ok")])
    for number in range(3):
        found = training_of(engine.calls, answered([says(" ok\n")], id=f"resp_{number}")).items
        assert found is not None
        assert found[0]["prompt_token_ids"] == Engine.spell([user("abc"[number])])
    last = training_of(engine.calls, answered([says("ok")])).items
    assert last is not None
    assert last[0]["prompt_token_ids"] == Engine.spell([user("c")])
    engine.call([user("d")], [asks(1)])
    calls_made = training_of(engine.calls, answered([asks(1), answer_to(asks(1))]))
    assert calls_made.masked_reason is None, "results after the last call do not hide it"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_record_with_a_gap_is_masked(lost: int) -> None:
    engine = Engine()
    _, last = tool_loop(engine, 3)
    del engine.calls[lost]
    training = training_of(engine.calls, answered(last))
    assert training.masked_reason == "capture_incomplete"
    assert training_of([], None, capture_complete=False).masked_reason == "capture_incomplete"


def test_a_reply_that_generated_nothing_ends_its_chain() -> None:
    engine = Engine()
    engine.call([user("go")], [asks(0)])
    history = [user("go"), asks(0), answer_to(asks(0))]
    engine.call(history, [])
    engine.call(history, [])
    training = training_of(engine.calls, {"id": "resp_2", "output": []})
    assert training.masked_reason is None
    assert training.items is not None
    assert len(delivered(training.items)) == 1


def test_tokens_that_became_no_item_are_on_a_message_without_text() -> None:
    engine = Engine()
    call = engine.call([user("go")], [])
    call.notes.tokens = TokenIds([1, 2], [3], [-0.1])
    engine.call([user("go"), user("well?")], [says("done")], prompt=[1, 2, 3, 4])
    training = training_of(engine.calls, answered([says("done")]))
    assert training.items is not None
    assert [item["role"] for item in training.items] == ["assistant", "user", "assistant"]
    assert training.items[0]["content"][0]["text"] == ""
    assert check_contiguous(training.items) is None


def test_call_ids_that_the_client_changed_are_those_of_the_reply_again() -> None:
    engine = Engine()
    engine.call([user("go")], [asks(0), asks(1)])
    renamed = [{**asks(number), "call_id": f"mine_{number}"} for number in (0, 1)]
    engine.call([user("go"), *renamed, answer_to(renamed[1]), answer_to(renamed[0])], [says("done")])
    items = training_of(engine.calls, answered([says("done")])).items
    assert items is not None
    assert [item.get("call_id") for item in items] == ["call_0", "call_1", "call_1", "call_0", None]


@pytest.mark.parametrize("bad", [-1, 2**40, "x", 1.5])
def test_ids_that_are_none_count_as_no_tokens(bad: Any) -> None:
    engine = Engine()
    call = engine.call([user("go")], [says("done")])
    call.notes.tokens = TokenIds([1, bad], [3], [-0.1])
    assert training_of(engine.calls, answered([says("done")])).masked_reason == "no_token_ids"


def item(prompt: Any, generation: Any, log_probs: Any) -> Item:
    return dict(zip(TOKEN_FIELDS, (prompt, generation, log_probs), strict=True))


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([], "no item has token ids"),
        ([says("x")], "no item has token ids"),
        ([{"prompt_token_ids": [1]}], "item 0 has prompt_token_ids and no generation_token_ids"),
        ([item([1], [], [])], "nothing was generated"),
        ([item([1], [2, 3], [0.0])], "2 generated tokens have 1 log probabilities"),
        ([item([1], [True], [0.0])], "no whole number"),
        ([item("12", [1], [0.0])], "no list"),
        ([item([1], [2], ["a"])], "no number"),
        ([item([1], [2], [0.0]), item([1, 3], [4], [0.0])], "leaves the tokens before it at token 1"),
        ([item([1], [2], [0.0]), item([1], [4], [0.0])], "leaves the tokens before it at token 1"),
        ([item([1], [2], [0.0]), says("y"), item([1, 2, 5], [4], [0.0])], None),
    ],
)
def test_the_check_of_contiguity(items: list[Item], problem: str | None) -> None:
    found = check_contiguous(items)
    assert (found is None) if problem is None else (found is not None and problem in found)


STEP = st.sampled_from(["tool", "tool", "tool", "retry same", "retry other", "cut", "side", "parallel", "edit", "respell", "user"])


class Played:
    """A rollout played from a list of steps, and what must come of it."""

    def __init__(self, steps: list[str]) -> None:
        self.engine = Engine()
        self.main: list[ModelCall] = []
        """The calls since the last break."""
        self.reason: str | None = None
        history: list[Item] = [SYSTEM, user("task")]
        for number, step in enumerate(steps):
            call = asks(number)
            if step == "cut":
                self.engine.call(history, [call], complete=False)
            elif step in ("side", "parallel"):
                name = f"sub {number}" if step == "side" else "sub"
                self.engine.call([user(name)], [asks(number, "aside")])
                continue
            elif step == "edit" and len(history) > 2:
                sent = max(place for place, item in enumerate(history) if item.get("type") == "function_call")
                place = number % (sent - 1) + 2  # what comes later the model has not seen yet: that is no history
                history = [*history[:place], *self._edited(history[place], number), *history[place + 1 :]]
                self.reason, self.main = "history_edited", []
            elif step == "retry same":
                self.engine.call(history, [call])
            elif step == "retry other":
                self.engine.call(history, [asks(1000 + number)])
            respelt = 0
            if step == "respell" and len(history) > 2:
                respelt, self.reason, self.main = 1000 * (number + 1), "retokenized", []
            prompt = self._prompt(history, respelt)
            self.main.append(self.engine.call(history, [call], prompt=prompt))
            history = [*history, call, answer_to(call, f"seen {number}"), *([user(f"and {number}")] if step == "user" else [])]
            self.prompt = [*prompt, *Engine.spell([call]), *Engine.spell(history[history.index(call) + 1 :])]
            self.known = list(history)
        final = [says("the end")]
        self.main.append(self.engine.call(history, final, prompt=self._prompt(history, 0)))
        self.response = answered(final)

    @staticmethod
    def _edited(old: Item, number: int) -> list[Item]:
        return (
            [{**old, "arguments": f'{{"edited": {number}}}'}] if "arguments" in old else [{**user(f"edited {number}"), "type": "message"}]
        )

    def _prompt(self, history: list[Item], respelt: int) -> list[int]:
        """What the engine makes of a history: what it had before where the client sends it unchanged."""
        if not respelt and history == getattr(self, "known", None):
            return self.prompt
        return self.engine.prompt(history, respelt)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=14))
def test_any_rollout_delivers_the_chain_of_its_final_answer_and_nothing_else(steps: list[str]) -> None:
    played = Played(steps)
    training = training_of(played.engine.calls, played.response)
    assert training.masked_reason == played.reason
    assert training.items is not None
    assert check_contiguous(training.items) is None
    tokens = [call.notes.tokens for call in played.main]
    assert delivered(training.items) == [each.generation for each in tokens if each]
    assert [found["prompt_token_ids"] for found in training.items if "prompt_token_ids" in found] == [
        each.prompt for each in tokens if each
    ]
    _check_account(played, training.report)


def _check_account(played: Played, report: dict[str, Any]) -> None:
    """Every distinct generation is in exactly one chain, and the fraction follows."""
    distinct = {(tuple(ids.prompt), tuple(ids.generation)) for call in played.engine.calls if call.complete and (ids := call.notes.tokens)}
    generated = sum(len(generation) for _, generation in distinct)
    assert sum(chain["generated_tokens"] for chain in report["chains"]) == report["generated_tokens"] == generated
    assert sum(chain["calls"] for chain in report["chains"]) == len(distinct)
    assert report["n_calls_with_tokens"] - report["n_repeated_calls"] == len(distinct)
    sent = sum(len(call.notes.tokens.generation) for call in played.main if call.notes.tokens)
    assert report["delivered_tokens"] == sent
    assert report["delivered_fraction"] == pytest.approx(sent / generated)
    assert [chain["delivered"] for chain in report["chains"]].count(True) == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, min_size=2, max_size=10), st.randoms(use_true_random=False))
def test_the_order_in_which_parallel_calls_were_recorded_does_not_matter(steps: list[str], random: Any) -> None:
    played = Played(steps)
    before = training_of(played.engine.calls, played.response)
    aside = [call for call in played.engine.calls if call.request["input"][0]["content"].startswith("sub")]
    others = [call for call in played.engine.calls if call not in aside]
    for call in aside:
        others.insert(random.randrange(len(others) + 1), call)
    for index, call in enumerate(others):
        call.index = index
    shuffled = list(others)
    random.shuffle(shuffled)
    after = training_of(shuffled, played.response)
    assert after.items == before.items
    assert after.masked_reason == before.masked_reason
    assert _account(after.report) == _account(before.report)


def _account(report: dict[str, Any]) -> dict[str, Any]:
    chains = sorted(report["chains"], key=lambda chain: (chain["calls"], chain["generated_tokens"], chain["delivered"]))
    return {**report, "chains": chains, "breaks": sorted(each["reason"] for each in report["breaks"])}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=4), st.lists(st.integers(0, 2), max_size=3)), max_size=12))
def test_a_call_continues_the_longest_that_is_a_prefix(sequences: list[tuple[list[int], list[int]]]) -> None:
    """Against the definition, pair by pair."""
    engine = Engine()
    for prompt, generation in sequences:
        engine.call([user("x")], []).notes.tokens = TokenIds(prompt, generation, [0.0] * len(generation))
    forest = build_forest(engine.calls)
    assert {(tuple(node.tokens.prompt), tuple(node.tokens.generation)) for node in forest.nodes} == {
        (tuple(prompt), tuple(generation)) for prompt, generation in sequences
    }
    for node in forest.nodes:
        prompt = node.tokens.prompt
        fulls = [other.tokens.prompt + other.tokens.generation for other in forest.nodes if other.tokens.generation]
        longest = max((len(full) for full in fulls if prompt[: len(full)] == full), default=None)
        found = node.parent and len(node.parent.tokens.prompt) + len(node.parent.tokens.generation)
        assert found == longest
        assert node in node.path()
    chains = forest.chains()
    assert sorted(id(node) for chain in chains for node in chain) == sorted(map(id, forest.nodes))
    for chain in chains:
        for before, after in pairwise(chain):
            assert after.parent is before


def test_three_hundred_calls_of_long_prompts_are_cheap() -> None:
    """Thirty thousand tokens a prompt: nine million in all. A comparison token by token in Python would take many seconds."""
    import time

    engine, tokens = Engine(), list(range(10, 30_010))
    for number in range(300):
        generation = [number % 250, 1, 2]
        call = engine.call([user("x")], [asks(number)], tokens=False)
        call.notes.tokens = TokenIds(tokens, generation, [0.0] * 3)
        tokens = tokens + generation
    begun = time.process_time()
    forest = build_forest(engine.calls)
    spent = time.process_time() - begun
    assert len(forest.nodes[-1].path()) == 300
    assert spent < 2
