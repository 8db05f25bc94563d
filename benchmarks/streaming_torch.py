"""A streaming sparse Gaussian process in PyTorch: the collapsed bound of Bui, Nguyen and Turner (2017) by autograd.

What a user of PyTorch would write, for `compare.py`: one model, squared exponential kernel, hyperparameters and
pseudo-inputs climbed by Adam. The bound is that of docs/method.md, section 2, and so is the summary of the past.
"""

from math import log, pi
from typing import NamedTuple

import numpy as np
import torch
from torch.linalg import cholesky, qr, solve_triangular

JITTER = 1e-8  # part of the kernel's variance


class Past(NamedTuple):
    """Observations `r = R f(Z) + N(0, I)` that stand for the rows seen so far."""

    Z: torch.Tensor
    R: torch.Tensor
    r: torch.Tensor


class Posterior(NamedTuple):
    """The factors of one bound: `L L^T = K_ZZ`, `A`, `t`, `L_B L_B^T = I + A A^T` and `c = L_B^-1 A t`."""

    L: torch.Tensor
    A: torch.Tensor
    t: torch.Tensor
    L_B: torch.Tensor
    c: torch.Tensor


def kernel(theta: torch.Tensor, X: torch.Tensor, X2: torch.Tensor) -> torch.Tensor:
    """(n, n2); theta holds the logarithms of amplitude, length-scales and noise."""
    inverse_lengthscales = torch.exp(-theta[1:-1])
    X, X2 = X * inverse_lengthscales, X2 * inverse_lengthscales
    squares = torch.addmm((X * X).sum(1)[:, None] + (X2 * X2).sum(1), X, X2.T, alpha=-2.0)
    return torch.exp(2.0 * theta[0] - 0.5 * squares)


class Evidence:
    """The bound of a batch `X` (n, d), `y` (n,) and the past, as a function of hyperparameters and pseudo-inputs."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor, past: Past) -> None:
        self.X, self.y, self.past = X, y, past
        self.inputs = torch.cat([X, past.Z])
        self.precision = past.R.T @ past.R

    def posterior(self, theta: torch.Tensor, Z: torch.Tensor) -> Posterior:
        n, noise, identity = len(self.y), theta[-1].exp(), torch.eye(len(Z))
        K = kernel(theta, Z, self.inputs)
        L = cholesky(kernel(theta, Z, Z) + JITTER * torch.exp(2.0 * theta[0]) * identity)
        A = solve_triangular(L, torch.cat([K[:, :n] / noise, K[:, n:] @ self.past.R.T], 1), upper=False)
        t = torch.cat([self.y / noise, self.past.r])
        L_B = cholesky(torch.addmm(identity, A, A.T))
        return Posterior(L, A, t, L_B, solve_triangular(L_B, (A @ t)[:, None], upper=False)[:, 0])

    def bound(self, theta: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
        _, A, t, L_B, c = self.posterior(theta, Z)
        fit = 2.0 * L_B.diagonal().log().sum() + t @ t - c @ c + len(self.y) * (log(2.0 * pi) + 2.0 * theta[-1])
        unexplained = len(self.y) * torch.exp(2.0 * (theta[0] - theta[-1])) - (A * A).sum()
        if len(self.past.Z):
            unexplained = unexplained + (self.precision * kernel(theta, self.past.Z, self.past.Z)).sum()
        return -0.5 * (fit + unexplained)


class StreamingGP:
    """One model for ever; rows and targets in units of about one.

    Parameters
    ----------
    n_inducing : pseudo-inputs (M); the first ones are some of `places` (n, d), or of the first rows if that is None.
        Later ones start where the old ones are.
    n_steps : steps of Adam for a batch; n_first_steps : for the first one.
    keeps_momentum : whether Adam goes on from batch to batch, or starts anew.
    """

    def __init__(
        self, n_inducing: int, n_steps: int, n_first_steps: int, learning_rate: float, keeps_momentum: bool
    ) -> None:
        torch.set_default_dtype(torch.float64)
        self.n_inducing, self.n_steps, self.n_first_steps = n_inducing, n_steps, n_first_steps
        self.learning_rate, self.keeps_momentum = learning_rate, keeps_momentum
        self.past: Past | None = None
        self.places: np.ndarray | None = None

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
        if self.past is None:
            self._begin(inputs)
            n_steps, past = self.n_first_steps, Past(inputs[:0], torch.empty(0, 0), targets[:0])
        else:
            n_steps, past = self.n_steps, self.past
        evidence = Evidence(inputs, targets, past)
        self._climb(evidence, n_steps)
        self._settle(evidence)

    def _begin(self, X: torch.Tensor) -> None:
        """Amplitude 1, length-scales that span the rows, and noise that is a third of the amplitude."""
        lengthscales = torch.full((X.shape[1],), 0.5 * log(X.shape[1]))
        self.theta = torch.cat([torch.zeros(1), lengthscales, torch.tensor([-1.2])]).requires_grad_()
        places = X if self.places is None else torch.from_numpy(self.places)
        rows = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))[: self.n_inducing]
        self.Z = places[rows].requires_grad_()
        self.optimizer = self._adam()

    def _adam(self) -> torch.optim.Adam:
        return torch.optim.Adam([self.theta, self.Z], lr=self.learning_rate)

    def _climb(self, evidence: Evidence, n_steps: int) -> None:
        if not self.keeps_momentum:
            self.optimizer = self._adam()
        for _ in range(n_steps):
            self.optimizer.zero_grad()
            (-evidence.bound(self.theta, self.Z)).backward()
            self.optimizer.step()

    @torch.no_grad()
    def _settle(self, evidence: Evidence) -> None:
        """The posterior at what was learned, and the new summary: `A^T = Q U`, `R = U L^-1`, `r = Q^T t`."""
        self.posterior = evidence.posterior(self.theta, self.Z)
        L, A, t, L_B, c = self.posterior
        self.alpha = solve_triangular(L_B.T, c[:, None], upper=True)[:, 0]
        Q, U = qr(A.T)
        self.past = Past(self.Z.clone(), solve_triangular(L.T, U.T, upper=True).T, Q.T @ t)

    @torch.no_grad()
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of an observation."""
        k = solve_triangular(self.posterior.L, kernel(self.theta, self.Z, torch.from_numpy(X)), upper=False)
        explained = solve_triangular(self.posterior.L_B, k, upper=False)
        field = torch.exp(2.0 * self.theta[0]) - (k * k).sum(0) + (explained * explained).sum(0)
        return (k.T @ self.alpha).numpy(), torch.sqrt(field + torch.exp(2.0 * self.theta[-1])).numpy()


class ThoroughStreamingGP(StreamingGP):
    """The same, climbed by L-BFGS to where it ends, or for so many iterations, with every batch."""

    def __init__(self, n_inducing: int, n_iterations: int) -> None:
        super().__init__(n_inducing, n_iterations, n_iterations, learning_rate=1.0, keeps_momentum=False)

    def _climb(self, evidence: Evidence, n_steps: int) -> None:
        climber = torch.optim.LBFGS([self.theta, self.Z], max_iter=n_steps, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            climber.zero_grad()
            value = -evidence.bound(self.theta, self.Z)
            value.backward()
            return value

        climber.step(loss)
