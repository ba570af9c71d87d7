"""What no paper has: HAP's uneven shares with HiDup's overlap, against each planner alone."""

from collections.abc import Callable, Iterator, Sequence

from benchmarks.papers import models as papers_models
from benchmarks.papers.bands import AT_LEAST
from benchmarks.papers.measured import program_of
from benchmarks.papers.models.published import Model
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Kind, Relation, Row
from dyorc.planner import models
from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.pricing import by_hand, price_plan

MODELS: dict[str, Callable[[], Model]] = {
    "GPT": lambda: models.gpt(layers=2, hidden=256, heads=8, vocabulary=1024, sequence=64, batch=16),
    "Llama": lambda: models.llama(layers=2),
    "BERT": lambda: models.bert(layers=2),
    "BERT-MoE": models.bert_moe,
    "ViT": lambda: models.vit(layers=2),
    "ViT-MoE": models.vit_moe,
    "VGG19": lambda: models.vgg19(batch=16),
    "U-Net": lambda: papers_models.unet(batch=8),
    "Swin": lambda: papers_models.swin(batch=8),
}
_SPEEDS = ((1.0, 1.0), (2.0, 1.0), (3.0, 1.0))
_FLOPS_PER_BYTE = (100.0, 1000.0, 10000.0)
"""How many operations of the slow rank the link's bytes are worth: from much bandwidth to little."""


def combination(
    name: str,
    progress: Progress,
    speeds: Sequence[tuple[float, ...]] = _SPEEDS,
    intensities: Sequence[float] = _FLOPS_PER_BYTE,
) -> Iterator[Row]:
    """Yields the combination's time for a model against the best of the planners that it combines."""
    program = program_of(MODELS[name])
    for each in speeds:
        for intensity in intensities:
            progress(f"combination, {name} at {each}, {intensity:g} flops for each byte")
            cluster = uneven_cluster(each, flops_per_s=1e12, bytes_per_s=1e12 / intensity, latency_s=1e-6)
            plans = list(by_hand(program, cluster))
            plans.append(PLANNERS["hap"](program, cluster, known=list(plans)))
            plans.append(PLANNERS["hidup"](program, cluster, known=plans[:-1]))
            alone = {plan.provenance.planner: price_plan(plan, program, cluster).simulation.total_s for plan in plans}
            combined = PLANNERS["duplex_hap"](program, cluster, known=plans)
            ours = price_plan(combined, program, cluster).simulation.total_s
            best = min(alone, key=lambda planner: alone[planner])
            where = f"{name}, speeds {':'.join(f'{s:g}' for s in each)}, {intensity:g} flops per byte"
            yield Row(
                figure="combination",
                what=f"{where}: best alone / combination",
                published="",
                ours=f"{alone[best] / ours:.3f}",
                relation=Relation.OURS_ALONE if ours <= alone[best] * (1 + 1e-9) else Relation.DIFFERS,
                band=AT_LEAST.text,
                kind=Kind.OWN,
                note=f"best alone: {best}; " + ", ".join(f"{planner} {t / ours:.2f}" for planner, t in alone.items()),
            )
