"""How long it takes to bring a value from one mesh and placement into another, by the paths that the plan will take."""

from dyorc.planner.plan import Mesh, MeshAxis
from dyorc.planner.plan.adapters import Adapters, Spot, Tensor, seconds_on, tensor_of
from dyorc.planner.planners.tag.group_actions import Ranks, SearchContext
from dyorc.planner.program import REPLICATE, Placement, Shard


class RedistributionCosts:
    """Finds the seconds of movements. Paths are remembered, by shape. Not for several threads."""

    def __init__(self, scene: SearchContext) -> None:
        self._scene = scene
        self._adapters = Adapters(seconds_on(scene.cluster))
        self._meshes: dict[Ranks, Mesh] = {}
        self._tensors: dict[str, Tensor] = {}

    def seconds(self, name: str, before: tuple[Ranks, Placement], after: tuple[Ranks, Placement]) -> float:
        """Returns how long it takes to bring a value from some ranks and a placement on them to others."""
        tensor = self._tensor(name)
        return self._adapters.path(tensor, self._spot(tensor, *before), self._spot(tensor, *after)).cost

    def _tensor(self, name: str) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = tensor_of(self._scene.program, self._scene.choices.axes, name)
        return tensor

    def _spot(self, tensor: Tensor, ranks: Ranks, placement: Placement) -> Spot:
        mesh = self._meshes.get(ranks)
        if mesh is None:
            axis = MeshAxis(name="data", size=len(ranks))
            mesh = self._meshes[ranks] = Mesh(name="-".join(map(str, ranks)), axes=(axis,), ranks=ranks)
        if isinstance(placement, Shard):
            placement = self._adapters.shard(tensor, mesh, (), placement.dim) or REPLICATE
        return Spot(mesh, (placement,))
