"""What each model knows together with its neighbours, made when it is asked for, and kept (docs/joining.md).

Models are values: as long as a model and its neighbours are the same objects, so is what they know together, in this
ensemble and in those that come from it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, cast
from weakref import WeakKeyDictionary

from wgpr.gp.joint import joined, surprise
from wgpr.gp.joint import n_observations as n_observations_of
from wgpr.gp.model import LocalModel

# Numbers that are kept, of all joint_models: 256 MB.
_MOST_NUMBERS = 1 << 25

# Nats for each of its observations by which a neighbour may surprise a model, and still agrees with it.
_AGREEMENT = 1.0

_Key = tuple[Any, ...]


@dataclass(eq=False)
class JointModelCache:
    """Joint models by the models that they are made of; the latest ones, as many as the memory allows."""

    _known: "OrderedDict[_Key, Any]" = field(default_factory=OrderedDict)
    _size: int = 0
    _surprises: "WeakKeyDictionary[Any, WeakKeyDictionary[Any, float]]" = field(default_factory=WeakKeyDictionary)

    def __reduce__(self) -> tuple[type["JointModelCache"], tuple[()]]:
        """What is kept can be made again: copies and pickles begin with nothing."""
        return JointModelCache, ()

    def of(self, models: _Key, n_observations: int) -> LocalModel:
        """The first of `models`, joined with those of the others that agree with it, in their order.

        n_observations : that it may have in all.
        """
        key = (n_observations, *models)  # models are compared as objects
        if key in self._known:
            self._known.move_to_end(key)
            return cast(LocalModel, self._known[key])
        made = self._joined(models[0], self.agreeing(models[0], models[1:], n_observations))
        self._known[key] = made
        self._size += made.L.size
        while self._size > _MOST_NUMBERS and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._size -= oldest.L.size
        return cast(LocalModel, made)

    def _joined(self, owner: Any, others: Sequence[Any]) -> Any:
        """All of them together, or the owner alone if that cannot be computed."""
        try:
            return joined(owner, others, owner.shared)
        except ArithmeticError:
            return owner

    def agreeing(self, owner: Any, others: Sequence[Any], n_observations: int) -> list[Any]:
        """Those of `others`, in their order, that agree with the owner; so many observations in all, with its own.

        A neighbour from another world would mislead: what it knows must not surprise the owner too much.
        """
        found, size = [], n_observations_of(owner)
        for other in others:
            size += n_observations_of(other)
            if size > n_observations:
                break
            if self._surprise(owner, other) < _AGREEMENT:
                found.append(other)
            else:
                size -= n_observations_of(other)
        return found

    def _surprise(self, owner: Any, other: Any) -> float:
        known = self._surprises.setdefault(owner, WeakKeyDictionary())
        if other not in known:
            try:
                known[other] = surprise(owner, other)
            except ArithmeticError:
                known[other] = inf
        return known[other]
