"""What a map is: the names of its columns, the method and its settings."""

import json
import re
import secrets
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.io.coordinates import coordinates, coordinates_of
from wgpr.io.grids import input_names, target_name
from wgpr.io.rows import knows_rows_at_once
from wgpr.io.settings import new_estimator, settings_of

# Names of maps are names of folders.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

# Letters, digits, marks and blanks inside, but nothing that breaks a line.
_COLUMN = r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,98}[^\s\x00-\x1f\x7f])?$"
_MAX_INPUTS = 50
_CRS = r"^(EPSG:[0-9]{4,6}|OGC:CRS84)$"

# A process learns many maps, so none of them may take all of its time and memory.
_MOST = {
    "n_inducing": 1000,
    "batch_size": 10_000,
    "optimizer_iterations": 1000,
    "n_candidates": 1000,
    "max_models": 100_000,
    "max_samples": 2000,
    "n_calibration": 2000,
    "n_models": 1000,
    "n_best": 1000,
}

Column = Annotated[str, StringConstraints(pattern=_COLUMN)]


class Definition(BaseModel):
    """A map as `PUT /maps/{name}` makes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inputs: list[Column] = Field(min_length=1, max_length=_MAX_INPUTS, description="Names of the inputs.")
    target: Column = Field(description="Name of the target.")
    weight: Column | None = Field(None, description="Name of a column of weights, if rows have one.")
    method: str = Field("wgpr", max_length=40, description="As `wgpr settings` lists them.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Settings of the method, `{}` for the default.")
    crs: Annotated[str, StringConstraints(pattern=_CRS)] | None = Field(
        None, description="Coordinate reference system of x and y, such as EPSG:4326. Degrees are learned in metres."
    )

    @field_validator("settings")
    @classmethod
    def _is_small(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if len(repr(settings)) > 10_000:
            raise ValueError("settings must be shorter than 10,000 characters")
        json.dumps(settings, allow_nan=False)  # raises an error for numbers that are not finite
        for name, value in settings.items():
            if name in _MOST and isinstance(value, int | float) and value > _MOST[name]:
                raise ValueError(f"{name} must be at most {_MOST[name]:,} in the service")
        return settings

    @model_validator(mode="after")
    def _makes_sense(self) -> "Definition":
        names = self.columns
        if len(set(names)) < len(names):
            raise ValueError("inputs, target and weight must have different names")
        estimator = self.new_estimator()
        if not isinstance(estimator, OnlineRegressor):
            raise ValueError(f"method must learn from a stream; {self.method} learns all rows at once")
        if self.weight is not None and not knows_rows_at_once(estimator):
            raise ValueError("weight is for the default method; leave it out, or leave out method and settings")
        return self

    @classmethod
    def of_model(cls, model: EnsembleRegressor) -> "Definition":
        """That of a saved map, which keeps its settings."""
        known = coordinates(model)
        crs = None if known is None else known.name
        return cls.model_construct(inputs=input_names(model), target=target_name(model), crs=crs)

    @property
    def columns(self) -> list[str]:
        """Inputs, target and, last, the weights if there are any."""
        return [*self.inputs, self.target, *([self.weight] if self.weight is not None else [])]

    def new_estimator(self) -> EnsembleRegressor:
        """An estimator that has learned nothing. A wrong setting raises a ValueError that names it."""
        try:
            estimator = new_estimator(self.method, self.settings)
            if self.crs is not None:
                estimator.crs_ = coordinates_of(self.crs, self.inputs)
            return estimator
        except (TypeError, ImportError) as error:
            raise ValueError(str(error)) from error

    def with_seed(self) -> "Definition":
        """With a seed, so that learning the same rows again gives the same map to the bit."""
        if "random_state" not in settings_of(self.method) or self.settings.get("random_state") is not None:
            return self
        return self.model_copy(update={"settings": {**self.settings, "random_state": secrets.randbelow(2**31)}})

    def agrees_with(self, other: "Definition") -> bool:
        """Whether the other one is the same, but for a seed that was added."""
        wanted, known = {**self.settings}, {**other.settings}
        if wanted.get("random_state") is None:
            for settings in (wanted, known):
                settings.pop("random_state", None)
        return (self.columns, self.method, wanted, self.crs) == (other.columns, other.method, known, other.crs)


def is_map_name(name: str) -> bool:
    return re.fullmatch(NAME, name) is not None
