"""Encodes the passages once, so that a question is compared with vectors; takes 40 seconds on one core.

Writes ``weights/index.safetensors``, 85 MB. Python's reference differs between versions of Python: each needs its own index.
"""

import torch
from retrieval_corpus import digest, passages
from retrieval_nets import INDEX, PASSAGE_TOKENS, Encoder, Tokenizer
from safetensors.torch import save_file


@torch.inference_mode()
def main() -> None:
    """Encodes and saves."""
    torch.set_num_threads(1)
    tokenizer, encoder = Tokenizer(), Encoder().eval()
    tokens = torch.tensor([tokenizer(str(passage), PASSAGE_TOKENS) for passage in passages()])
    encoded = [encoder(batch) for batch in tokens.split(16)]
    INDEX.parent.mkdir(exist_ok=True)
    index = {
        "texts": torch.cat([texts for texts, _ in encoded]),
        "tokens": torch.cat([words.half() for _, words in encoded]),
        "digest": torch.tensor(list(digest().encode()), dtype=torch.uint8),
    }
    save_file(index, INDEX)
    print(f"{len(tokens)} passages, {INDEX.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
