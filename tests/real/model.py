"""Writes a tiny model of random weights for llama.cpp, as a program of `.venv-others`: `model.py VOCABULARY MODEL`.

One layer of 64 dimensions over the vocabulary of a file that has nothing else; 17 MB. Its replies are noise, with two
exceptions, without which no call would come about within the limit of tokens. After a line's end the mark `<tool_call>`
is likely. Quotation marks, and the end of a reply, are likely anywhere: the first dimension is the same for all tokens,
so a token's weight in it is what makes it likely.
"""

import re
import sys
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np

CONTEXT = 32_768
WIDTH, HEADS, INNER = 64, 2, 64
CONSTANT = 8.0
MARK = ("<0x0A>", "<", "tool", "_", "call", ">", "<0x0A>")
"""What follows what, as the vocabulary cuts it."""
FOLLOWS = 20.0
"""By how much the next of the mark is likelier than others."""
CLOSING, CLOSES = re.compile(r'"[}]*'), 1.2
"""What closes a text, and how likely it is: after a dozen tokens."""
ENDS = 2.4
"""How likely the end is: as likely as the mark after a line's end, so that some replies have several calls."""


def main(vocabulary: Path, model: Path) -> None:
    """Write the model's file, whole or not at all."""
    fields = gguf.GGUFReader(vocabulary).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    part = model.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    for name, field in fields.items():
        if name.startswith("tokenizer."):
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, sub_type=inner[-1] if inner else None)
    writer.add_add_space_prefix(False)
    for name, weights in tensors(tokens).items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(model)


def tensors(tokens: list[str]) -> dict[str, np.ndarray]:
    """All weights by llama.cpp's names. No layer writes to the first dimension."""
    draw = np.random.default_rng(20261123)

    def noise(rows: int, columns: int, size: float) -> np.ndarray:
        return draw.normal(0.0, size, (rows, columns)).astype(np.float32)

    read = noise(len(tokens), WIDTH, 1.0)
    read[:, 0] = CONSTANT
    write = noise(len(tokens), WIDTH, 0.2)
    write[:, 0] = 0.0
    write[[bool(CLOSING.fullmatch(text)) for text in tokens], 0] = CLOSES
    write[tokens.index("</s>"), 0] = ENDS
    for before, after in pairwise(map(tokens.index, MARK)):
        write[after, 1:] += FOLLOWS * read[before, 1:] / WIDTH
    layer = {
        "attn_q": noise(WIDTH, WIDTH, 0.1),
        "attn_k": noise(WIDTH, WIDTH, 0.1),
        "attn_v": noise(WIDTH, WIDTH, 0.1),
        "attn_output": noise(WIDTH, WIDTH, 0.1),
        "ffn_gate": noise(INNER, WIDTH, 0.1),
        "ffn_up": noise(INNER, WIDTH, 0.1),
        "ffn_down": noise(WIDTH, INNER, 0.1),
    }
    layer["attn_output"][0] = layer["ffn_down"][0] = 0.0
    ones = np.ones(WIDTH, np.float32)
    return {
        "token_embd.weight": read,
        "output_norm.weight": ones,
        "output.weight": write,
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        **{f"blk.0.{name}.weight": weights for name, weights in layer.items()},
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
