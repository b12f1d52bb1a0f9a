"""Random routings, for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from anabranch.plan.placement import Placement, even_placement
from anabranch.plan.routing import Diffused, Everywhere, Routing, Spread

weights = st.floats(0.001, 1_000) | st.integers(1, 5).map(float)


@st.composite
def placements(draw: st.DrawFn, groups: int, processors: int) -> Placement:
    """Of every form that is rendered by itself: whole, in blocks, and scattered."""
    scattered = st.lists(st.integers(0, processors - 1), min_size=groups, max_size=groups).map(tuple)
    whole = st.integers(0, processors - 1).map(lambda p: (p,) * groups)
    return draw(scattered | whole | st.just(even_placement(groups, min(processors, groups))))


@st.composite
def routings(draw: st.DrawFn, groups: int, processors: int, ports: int) -> Routing:
    """A routing that keeps all rules, with some groups diffused if there can be any."""
    routing = Routing(draw(placements(groups, processors)))
    chosen = draw(st.lists(st.integers(0, groups - 1), max_size=6, unique=True)) if min(processors, ports) > 1 else []
    for group in chosen:
        home = routing.placement[group]
        others = st.lists(st.sampled_from([p for p in range(processors) if p != home]), min_size=1, unique=True)
        hosts = tuple(draw(st.permutations([home, *draw(others)])))
        master = draw(st.integers(0, ports - 1))
        shares = tuple(draw(st.lists(weights, min_size=len(hosts), max_size=len(hosts))))
        routes: list[Diffused] = [Everywhere(hosts)] * ports
        routes[master] = Spread(hosts, shares)
        routing = routing.diffuse([group], tuple(routes))
    return routing
