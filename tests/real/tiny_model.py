"""Writes a tiny model of random weights in Hugging Face's format, with numpy alone: vLLM and Transformers serve it.

One layer of 64 dimensions over the 256 bytes and a few marks; 0.3 MB. Its replies are noise that the server's grammar
makes calls of where a call is required. Quotation marks, brackets and the end of a reply are likely anywhere: the first
dimension is the same for all tokens, so a token's weight in it is what makes it likely.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

CONTEXT = 65_536
WIDTH, HEADS, INNER = 64, 2, 64
CONSTANT = 8.0
CLOSES = {'"': 0.6, "}": 0.7, "]": 0.7, "<|im_end|>": 0.6}
"""What closes something, and how likely it is: after a dozen tokens."""
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
"""The last two are text, which a parser of tool calls reads."""
TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}\
{{ '<|im_end|>\\n' }}{% endif %}\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}\
{%- for call in message.tool_calls or [] %}{%- set made = call.function %}\
{{ '<tool_call>{"name": "' + made.name + '", "arguments": {' }}\
{%- for name, value in made.arguments.items() %}{{ name | tojson }}: {{ value | tojson }}\
{{ ', ' if not loop.last }}{% endfor %}{{ '}}</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Wants arguments as objects, as the templates of open models do."""


def letters() -> list[str]:
    """How tokenizers by bytes write each byte: those that print as themselves, the rest from U+0100 on."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def write_model(folder: Path) -> None:
    """Write configuration, tokenizer and weights."""
    folder.mkdir(parents=True)
    vocabulary = {text: number for number, text in enumerate((*letters(), *MARKS))}
    ids = {"bos_token_id": None, "eos_token_id": vocabulary[MARKS[2]], "pad_token_id": vocabulary[MARKS[0]]}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(vocabulary),
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": WIDTH // HEADS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "dtype": "float32",
        **ids,
    }
    files: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": {**ids, "do_sample": True},
        "tokenizer.json": _tokenizer(vocabulary),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": MARKS[2],
            "pad_token": MARKS[0],
            "model_max_length": CONTEXT,
            "chat_template": TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    _write_weights(folder / "model.safetensors", _weights(vocabulary))


def _tokenizer(vocabulary: dict[str, int]) -> dict[str, Any]:
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": vocabulary[mark], "content": mark, "special": mark in MARKS[:3], **plain} for mark in MARKS]
    merging = {"type": "BPE", "vocab": {text: vocabulary[text] for text in letters()}, "merges": []}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": by_bytes,
        "post_processor": None,
        "decoder": by_bytes,
        "model": merging,
    }


def _weights(vocabulary: dict[str, int]) -> dict[str, np.ndarray]:
    """All weights by their names. No layer writes to the first dimension."""
    draw = np.random.default_rng(20261123)

    def noise(rows: int, columns: int, size: float) -> np.ndarray:
        return draw.normal(0.0, size, (rows, columns)).astype(np.float32)

    read, write = noise(len(vocabulary), WIDTH, 1.0), noise(len(vocabulary), WIDTH, 0.2)
    read[:, 0], write[:, 0] = CONSTANT, 0.0
    for text, likely in CLOSES.items():
        write[vocabulary[text], 0] = likely
    attention = {f"self_attn.{name}_proj": noise(WIDTH, WIDTH, 0.1) for name in "qkvo"}
    inner = {"mlp.gate_proj": noise(INNER, WIDTH, 0.1), "mlp.up_proj": noise(INNER, WIDTH, 0.1)}
    layer = {**attention, **inner, "mlp.down_proj": noise(WIDTH, INNER, 0.1)}
    layer["self_attn.o_proj"][0] = layer["mlp.down_proj"][0] = 0.0
    ones = np.ones(WIDTH, np.float32)
    norms = {"model.norm": ones, **{f"model.layers.0.{name}_layernorm": ones for name in ("input", "post_attention")}}
    everything = {"model.embed_tokens": read, "lm_head": write, **norms}
    everything |= {f"model.layers.0.{name}": values for name, values in layer.items()}
    return {f"{name}.weight": values for name, values in everything.items()}


def _write_weights(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """The format of safetensors: the length of a header, the header, then the numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for values in tensors.values()))
