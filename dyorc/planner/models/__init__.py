"""Models to plan, small or large: each builder returns a module whose call returns its loss, and example inputs for it.

Under `torch.device("meta")` they have no weights, so that any size can be built and captured.
Anything else works as well that returns such a pair: `dyorc plan FILE:FUNCTION` calls the function.
"""

from dyorc.planner.models.bert import bert, bert_moe
from dyorc.planner.models.gpt import gpt
from dyorc.planner.models.llama import llama
from dyorc.planner.models.vgg import vgg19
from dyorc.planner.models.vit import vit, vit_moe

__all__ = ["bert", "bert_moe", "gpt", "llama", "vgg19", "vit", "vit_moe"]
