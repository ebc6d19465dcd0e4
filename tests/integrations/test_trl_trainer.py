"""One step of TRL's own `GRPOTrainer` with a tiny random model, whose words are scripted: what it trains on is real."""

import json
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.integrations.trl import dataset, environment

WHY = "needs torch and TRL: `python -m tests.integrations` installs them where they can be had"
torch = pytest.importorskip("torch", reason=WHY)
trl = pytest.importorskip("trl", reason=WHY)
datasets = pytest.importorskip("datasets", reason=WHY)
transformers = pytest.importorskip("transformers", reason=WHY)
tokenizers = pytest.importorskip("tokenizers", reason=WHY)

# Of TRL's and torch's own: the interface is experimental, and they call what they deprecate.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SUITE = "scheduling/basic"
CHOSEN: dict[str, Any] = {"instances": ["seed-0"], "vary": {"periods": [3]}}
END = "<|im_end|>"
MARKS = ("<|endoftext|>", "<|im_start|>", END, "<tool_call>", "</tool_call>", "<think>", "</think>")


def tokeniser() -> Any:
    """A token for each byte, and Qwen 3's template, which TRL ships."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({sign: i for i, sign in enumerate(alphabet)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=MARKS[0])
    made.add_special_tokens({"additional_special_tokens": list(MARKS[:2])})
    made.add_tokens(list(MARKS[3:]))
    made.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    return made


def model_of(tokens: Any) -> Any:
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=1 << 15,
        eos_token_id=tokens.eos_token_id,
        pad_token_id=tokens.pad_token_id,
    )
    return transformers.Qwen3ForCausalLM(config)


def oracle() -> tuple[list[str], float]:
    """What the optimal agent calls, as a model of that template writes it; and its score."""
    (instance,) = evalkit.suite(SUITE, **CHOSEN)
    episode = evalkit.play("oracle", instance)
    assert episode.score is not None
    calls = [call for reply in episode.replies if reply is not None for call in reply.calls]
    said = [json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}) for call in calls]
    return [f"<tool_call>\n{one}\n</tool_call>" for one in said], episode.score.value


def test_a_step_of_the_trainer_trains_on_episodes_that_were_played(tmp_path: Path) -> None:
    """Of two rollouts of an instance one plays as the oracle does, and one says a word."""
    tokens, (calls, score) = tokeniser(), oracle()
    model, asked = model_of(tokens), list[int]()

    def generate(input_ids: Any, **_: Any) -> Any:
        call = calls[len(asked)] if len(asked) < len(calls) else "That is all."
        asked.append(len(input_ids))
        said = [tokens.encode(text + END) for text in (call, "No.")[: len(input_ids)]]
        wide = max(map(len, said))
        rows = [ids + [tokens.pad_token_id] * (wide - len(ids)) for ids in said]
        return torch.cat([input_ids, torch.tensor(rows)], dim=1)

    model.generate = generate
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokens,
        train_dataset=datasets.Dataset.from_list(dataset(SUITE, **CHOSEN)),
        environment_factory=environment(SUITE, **CHOSEN),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=1 << 14,
            learning_rate=1e-2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
    )
    trainer.train()
    told = trainer.state.log_history[0]
    assert asked[0] == 2
    assert len(asked) > len(calls) - 1
    assert told["reward"] == pytest.approx(score / 2)
    assert told["reward_std"] > 0
    assert told["tools/call_frequency"] == pytest.approx(len(calls) / 2)
    assert told["tools/failure_frequency"] == 0
    changed = [name for name, value in trainer.model.named_parameters() if not torch.equal(value, before[name])]
    assert changed
