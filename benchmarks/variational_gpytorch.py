"""Two online variational Gaussian processes with GPyTorch, for `compare.py`.

`ConditionedGP` learns hyperparameters and pseudo-inputs from its first rows by the evidence lower bound, and then takes
in batches in closed form, as in the online variational conditioning of Maddox, Stanton and Wilson (2021).
`StochasticGP` goes on learning everything: a few gradient steps for each batch, natural ones for the variational
distribution (Hensman, Fusi and Lawrence 2013).
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.optim import NGD
from gpytorch.variational import CholeskyVariationalDistribution, NaturalVariationalDistribution, VariationalStrategy
from torch.linalg import cholesky, solve_triangular

JITTER = 1e-8  # part of the kernel's variance
ROWS_AT_A_TIME = 2000  # of predictions

Distribution = Callable[[int], torch.nn.Module]


class VariationalGP(ApproximateGP):
    """A sparse Gaussian process with squared exponential kernel; rows and targets in units of about one."""

    def __init__(self, Z: torch.Tensor, distribution: Distribution) -> None:
        super().__init__(VariationalStrategy(self, Z, distribution(len(Z)), learn_inducing_locations=True))
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=Z.shape[1]))
        self.likelihood = GaussianLikelihood()
        self.covar_module.outputscale = 1.0
        self.covar_module.base_kernel.lengthscale = sqrt(Z.shape[1])
        self.likelihood.noise = 0.1

    def forward(self, X: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))

    def covariance(self, X: torch.Tensor, X2: torch.Tensor) -> torch.Tensor:
        return self.covar_module(X, X2).to_dense()


class _OnlineGP:
    """What both have in common: the first pseudo-inputs, and how predictions are made.

    places : (n, d) of which some are the first pseudo-inputs; some of the first rows if it is None.
    """

    distribution: Distribution

    def __init__(self, n_inducing: int) -> None:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)
        self.n_inducing = n_inducing
        self.gp: VariationalGP | None = None
        self.places: np.ndarray | None = None

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
        if self.gp is None:
            places = inputs if self.places is None else torch.from_numpy(self.places)
            Z = places[torch.randperm(len(places))[: self.n_inducing]].clone()
            self.gp = VariationalGP(Z, type(self).distribution)
            self._begin(self.gp, inputs, targets)
        else:
            self._update(self.gp, inputs, targets)

    @torch.no_grad()
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of an observation."""
        answers = [self.gp.likelihood(self.gp(part)) for part in torch.from_numpy(X).split(ROWS_AT_A_TIME)]
        mean, variance = (torch.cat([getattr(part, name) for part in answers]) for name in ("mean", "variance"))
        return mean.numpy(), variance.sqrt().numpy()


class ConditionedGP(_OnlineGP):
    """Online variational conditioning: hyperparameters and pseudo-inputs stay what the first rows have made them.

    GPyTorch's `get_fantasy_model` is its first half: it turns the model into pseudo-observations at the pseudo-inputs
    and adds the batch, but it returns an exact model that has grown by the batch. The second half, back to M
    pseudo-inputs, is the optimal variational distribution given pseudo-observations and batch, as in the authors'
    experiments on streams.

    Parameters
    ----------
    n_first_steps : steps of Adam on the evidence lower bound of the first rows.
    """

    distribution = CholeskyVariationalDistribution

    def __init__(self, n_inducing: int, n_first_steps: int, learning_rate: float) -> None:
        super().__init__(n_inducing)
        self.n_first_steps, self.learning_rate = n_first_steps, learning_rate

    def _begin(self, gp: VariationalGP, X: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.Adam(gp.parameters(), lr=self.learning_rate)
        evidence = VariationalELBO(gp.likelihood, gp, num_data=len(y))
        gp.train()
        for _ in range(self.n_first_steps):
            optimizer.zero_grad()
            (-evidence(gp(X), y)).backward()
            optimizer.step()
        gp.eval()

    @torch.no_grad()
    def _update(self, gp: VariationalGP, X: torch.Tensor, y: torch.Tensor) -> None:
        """`v = L^-1 (f(Z) - m)` given `y` and the pseudo-observations: covariance `B^-1`, mean `B^-1 A t`."""
        strategy, noise = gp.variational_strategy, gp.likelihood.noise.sqrt()
        Z, identity = strategy.inducing_points.detach(), torch.eye(self.n_inducing)
        pseudo_covariance, pseudo_targets = strategy.pseudo_points
        L_pseudo = cholesky(pseudo_covariance)
        K_ZZ = gp.covariance(Z, Z)
        L = cholesky(K_ZZ + JITTER * gp.covar_module.outputscale * identity)
        parts = [gp.covariance(Z, X) / noise, solve_triangular(L_pseudo, K_ZZ, upper=False).T]
        A = solve_triangular(L, torch.cat(parts, 1), upper=False)
        pseudo_t = solve_triangular(L_pseudo, pseudo_targets.reshape(-1, 1), upper=False)[:, 0]
        t = torch.cat([(y - gp.mean_module.constant) / noise, pseudo_t])
        L_B = cholesky(identity + A @ A.T)
        covariance = torch.cholesky_inverse(L_B)
        self._set(gp, covariance @ (A @ t), cholesky(covariance))

    @staticmethod
    def _set(gp: VariationalGP, mean: torch.Tensor, factor: torch.Tensor) -> None:
        """Replace the variational distribution; what the model remembers of the old one goes with `train`."""
        distribution = gp.variational_strategy._variational_distribution
        gp.train()
        distribution.variational_mean.copy_(mean)
        distribution.chol_variational_covar.copy_(factor)
        gp.variational_strategy._clear_cache()
        gp.eval()


class StochasticGP(_OnlineGP):
    """Stochastic variational inference: each batch stands for as many rows as there were so far.

    Parameters
    ----------
    n_steps : steps for a batch; n_first_steps : for the first one.
    learning_rate : of hyperparameters and pseudo-inputs (Adam); natural_rate : of the variational distribution.
    """

    distribution = NaturalVariationalDistribution

    def __init__(
        self, n_inducing: int, n_steps: int, n_first_steps: int, learning_rate: float, natural_rate: float
    ) -> None:
        super().__init__(n_inducing)
        self.n_steps, self.n_first_steps = n_steps, n_first_steps
        self.learning_rate, self.natural_rate = learning_rate, natural_rate
        self.n_seen = 0

    def _begin(self, gp: VariationalGP, X: torch.Tensor, y: torch.Tensor) -> None:
        self.evidence = VariationalELBO(gp.likelihood, gp, num_data=len(y))
        self.natural = NGD(gp.variational_parameters(), num_data=len(y), lr=self.natural_rate)
        self.adam = torch.optim.Adam(gp.hyperparameters(), lr=self.learning_rate)
        self._climb(gp, X, y, self.n_first_steps)

    def _update(self, gp: VariationalGP, X: torch.Tensor, y: torch.Tensor) -> None:
        self._climb(gp, X, y, self.n_steps)

    def _climb(self, gp: VariationalGP, X: torch.Tensor, y: torch.Tensor, n_steps: int) -> None:
        self.n_seen += len(y)
        self.evidence.num_data = self.natural.num_data = self.n_seen
        gp.train()
        for _ in range(n_steps):
            self.natural.zero_grad()
            self.adam.zero_grad()
            (-self.evidence(gp(X), y)).backward()
            self.natural.step()
            self.adam.step()
        gp.eval()
