"""Territories of pseudo-data: how the default learns (docs/territories.md)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from wgpr.ensemble.cuts import Node, divided, route
from wgpr.gp.evidence import Evidence
from wgpr.gp.hyperparameters import LENGTHSCALE_FACTORS, HyperPrior, Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, Indices, NotFactorizableError
from wgpr.gp.optimize import maximize_lbfgs
from wgpr.gp.pseudodata import LOSS_PER_ROW, Posterior, PseudoData, thin

P = {k[3:]: float(v) for k, v in os.environ.items() if k.startswith("TP_")}  # experiments


@dataclass(frozen=True, eq=False)
class Territory:
    """A local model: pseudo-data, and the hyperparameters under which they are read.

    n_seen : rows that it has learned; n_fitted : how many when its hyperparameters were fitted last.
    mean : (k,) prior mean.
    """

    kernel: Kernel
    data: PseudoData
    theta: Hyperparameters
    mean: Array
    n_seen: float
    n_fitted: float
    n_known: int = 0
    log_evidence: float = 0.0

    @cached_property
    def centre(self) -> Array:
        return self.data.Z.mean(axis=0)

    @cached_property
    def posterior(self) -> Posterior:
        return Posterior(self.kernel, self.theta, self.mean, self.data)


@dataclass(frozen=True)
class Settings:
    kernel: Kernel
    capacity: int = 150
    n_halo: int = 100
    n_neighbours: int = 8
    growth: float = 2.0
    max_iter: int = 6


def _blocks(Z: Array, size: int) -> list[Indices]:
    """Indices of the points, in compact blocks of at most `size`."""
    stack, blocks = [np.arange(len(Z))], []
    while stack:
        rows = stack.pop()
        if len(rows) <= size:
            blocks.append(rows)
            continue
        axis = int(np.argmax(np.ptp(Z[rows], axis=0)))
        order = rows[np.argsort(Z[rows, axis], kind="stable")]
        stack += [order[: len(rows) // 2], order[len(rows) // 2 :]]
    return blocks


GATE = P.get("GATE", 16.0)


def agreement(difference: Array) -> Array:
    """Between 0 and 1, of differences (..., p) of log hyperparameters."""
    size = np.sqrt((difference**2).mean(axis=-1))
    return np.clip((P.get("AGMAX", 1.0) - size) / 0.4, 0.0, 1.0)


class Learning:
    """Territories while they learn."""

    def __init__(self, settings: Settings, d: int, k: int) -> None:
        self.settings = settings
        self.cuts: Node = 0
        self.territories: list[Territory] = []
        self.centres = np.empty((0, d))
        self.log_thetas = np.empty((0, d + 2 + settings.kernel.n_shape))
        self.residuals, self.densities = [], []
        self.stats = dict(looks=0, evaluations=0, thinned=0, divided=0, tried=0)
        self.seconds = dict(look=0.0, thin=0.0, halo=0.0)

    def learn(self, X: Array, y: Array, weights: Array) -> None:
        if not self.territories:
            n = min(len(y), 20)
            self._begin(X[:n], y[:n], weights[:n])
            X, y, weights = X[n:], y[n:], weights[n:]
        owners = route(self.cuts, X)
        start = 0
        while start < len(y):
            stop, number = self._next_event(owners, start)
            for owner in np.unique(owners[start:stop]).tolist():
                rows = start + np.flatnonzero(owners[start:stop] == owner)
                self._union(owner, X[rows], y[rows], weights[rows])
            if number is not None:
                n_before = len(self.territories)
                self._event(number)
                if len(self.territories) > n_before:
                    again = stop + np.flatnonzero(owners[stop:] == number)
                    owners[again] = route(self.cuts, X[again])
            start = stop

    def _begin(self, X: Array, y: Array, weights: Array) -> None:
        kernel = self.settings.kernel
        mean = y.mean(axis=0)
        scales = Scales.of(X, y, mean)
        theta = default_hyperparameters(kernel, scales)
        data = PseudoData.of_rows(X, y, weights, theta.noise)
        self._put(Territory(kernel, data, theta, mean, len(y), 0.0), None)
        self._look(0, np.empty(0, dtype=np.intp), None)

    def _put(self, territory: Territory, number: int | None) -> None:
        log_theta = territory.theta.to_log()
        if number is None:
            self.territories.append(territory)
            self.centres = np.concatenate([self.centres, territory.centre[None]])
            self.log_thetas = np.concatenate([self.log_thetas, log_theta[None]])
        else:
            self.territories[number] = territory
            self.centres[number] = territory.centre
            self.log_thetas[number] = log_theta

    def _next_event(self, owners: Indices, start: int) -> tuple[int, int | None]:
        """Where the next event happens: one behind its row, and the territory."""
        stop, number = len(owners), None
        for owner in np.unique(owners[start:]).tolist():
            n_until = self._n_until_event(self.territories[owner])
            rows = np.flatnonzero(owners[start:stop] == owner)
            if len(rows) >= n_until:
                stop, number = start + int(rows[n_until - 1]) + 1, owner
        return stop, number

    def _n_until_event(self, territory: Territory) -> int:
        full = self.settings.capacity + 1 - len(territory.data)
        due = int(np.ceil(self.settings.growth * territory.n_fitted - territory.n_seen))
        return max(1, min(full, due))

    def _union(self, number: int, X: Array, y: Array, weights: Array) -> None:
        old = self.territories[number]
        data = PseudoData.union(old.data, PseudoData.of_rows(X, y, weights, old.theta.noise))
        self._put(replace(old, data=data, n_seen=old.n_seen + len(y)), number)

    def _event(self, number: int) -> None:
        territory = self.territories[number]
        is_full = len(territory.data) > self.settings.capacity
        if is_full:
            united = territory.data.united()
            if len(united) < 0.9 * len(territory.data):
                self._put(replace(territory, data=united), number)
                return
        is_due = not is_full or territory.n_seen > P.get("FULLGROW", 1.5) * territory.n_fitted
        near, halo = self._around(number)
        self._known = None
        if 0 < territory.n_known < len(territory.data):
            is_due |= self._forecast(number, territory, halo)
        if is_due:
            n_before = len(self.territories)
            self._look(number, near, halo)
            if len(self.territories) > n_before:
                return
        if is_full:
            self._make_room(number)

    def _around(self, number: int) -> tuple[Indices, PseudoData | None]:
        near = self.neighbours(number) if len(self.territories) > 1 else np.empty(0, dtype=np.intp)
        near = self.agreeing(number, near)
        return near, self.halo(number, near)

    # Hyperparameters

    def neighbours(self, number: int) -> Indices:
        theta = self.territories[number].theta
        D = ((self.centres - self.centres[number]) / theta.lengthscales) ** 2
        D = D.sum(axis=1)
        D[number] = np.inf
        k = min(self.settings.n_neighbours, len(D) - 1)
        near = np.argpartition(D, k - 1)[:k] if k < len(D) - 1 else np.flatnonzero(np.isfinite(D))
        return near[np.argsort(D[near], kind="stable")]

    def halo(self, number: int, near: Indices) -> PseudoData | None:
        territory, n = self.territories[number], self.settings.n_halo
        if not len(near) or not n:
            return None
        around = PseudoData.union(*(self.territories[other].data for other in near[:6].tolist()))
        Z = territory.data.Z
        if P.get("SPREAD"):
            around = PseudoData.union(*(self.territories[other].data for other in near.tolist()))
            stride = max(1.0, len(around) / n)
            return around[np.arange(0, len(around), stride).astype(np.intp)]
        gap = np.maximum(np.maximum(Z.min(axis=0) - around.Z, around.Z - Z.max(axis=0)), 0.0) / territory.theta.lengthscales
        gap = np.einsum("ij,ij->i", gap, gap)
        if len(gap) > n:
            return around[np.argpartition(gap, n - 1)[:n]]
        return around

    def _prior(self, territory: Territory, scales: Scales, near: Indices) -> HyperPrior:
        kernel = self.settings.kernel
        prior = HyperPrior.around(kernel, scales, default_hyperparameters(kernel, scales), 0.7)
        if len(near):
            logs = self.log_thetas[near]
            std = np.sqrt(logs.var(axis=0) * P.get("VARW", 1.0) + 0.49 / (1 + len(logs))).clip(P.get("MINSTD", 0.2), 0.7)
            prior = HyperPrior(logs.mean(axis=0), std, prior.box)
        n_lost = territory.n_seen - territory.data.is_row.sum()
        if n_lost > 0.5:
            own = HyperPrior.around(kernel, scales, territory.theta, P.get("OWNSTD", 0.25))
            own.std[-1] = min(0.25, (2.0 * min(n_lost, 200)) ** -0.5)
            prior = own.combined(prior)
        return prior

    def _look(self, number: int, near: Indices, halo: PseudoData | None) -> None:
        started = perf_counter()
        territory, kernel = self.territories[number], self.settings.kernel
        own = territory.data
        t = own.t - territory.mean
        scales = Scales.of(own.Z, own.t, territory.mean)
        prior = self._prior(territory, scales, near)
        noise2 = territory.theta.noise**2
        variance = np.where(own.is_row, 1.0 / (own.precision * noise2), 1.0 / own.precision)
        Z, is_row = own.Z, own.is_row
        if halo is not None:
            Z, t = np.concatenate([Z, halo.Z]), np.concatenate([t, halo.t - territory.mean])
            hv = np.where(halo.is_row & bool(P.get("HALOROWS", 0)), 1.0 / (halo.precision * noise2), 1.0 / halo.precision)
            variance = np.concatenate([variance, hv])
            is_row = np.concatenate([is_row, halo.is_row & bool(P.get("HALOROWS", 0))])
        self.seconds["halo"] += perf_counter() - started
        d = Z.shape[1]
        blocks = _blocks(Z / territory.theta.lengthscales, int(P.get("BLOCK", 250)))
        evidences = [Evidence(kernel, Z[b], t[b], variance[b], is_row[b]) for b in blocks]

        def objective(log_theta: Array) -> tuple[float, Array]:
            theta = Hyperparameters.from_log(log_theta, d)
            log_prior, by = prior.log_density(log_theta)
            value, gradient = 0.0, 0.0
            for evidence in evidences:
                v, g = evidence.value_and_gradient(theta)
                value, gradient = value + v, gradient + g
            return value + log_prior, gradient + by

        starts = [territory.theta]
        if territory.n_fitted == 0:
            starts = [default_hyperparameters(kernel, scales, f) for f in LENGTHSCALE_FACTORS]
        best, best_value = None, -np.inf
        for start in starts:
            n_iter = int(P.get("ITER", self.settings.max_iter)) if len(starts) == 1 else 20
            found = maximize_lbfgs(objective, start.to_log(), prior.box, np.full(len(prior.mean), P.get("SCALE", 0.06)), n_iter, P.get("GAIN", 0.05))
            value = objective(found)[0] if len(starts) > 1 else 0.0
            if value > best_value:
                best, best_value = found, value
        theta = Hyperparameters.from_log(best, d)
        self.stats["looks"] += 1
        self.stats["evaluations"] += sum(e.n_evaluations for e in evidences)
        data = own.with_noise(territory.theta.noise, theta.noise)
        if territory.n_known and territory.n_known < len(own) and territory.n_fitted > 0 and not P.get("NOWORLD"):
            if self._other_regime(number, territory, replace(territory, data=data, theta=theta), halo):
                self.seconds["look"] += perf_counter() - started
                return
        self._put(replace(territory, data=data, theta=theta, n_fitted=territory.n_seen, n_known=len(data)), number)
        if P.get("BLOCKCV") and territory.n_fitted > 0:
            every = data if halo is None else PseudoData.union(data, halo)
            C = kernel(theta, every.Z, every.Z)
            C[np.diag_indices_from(C)] += 1.0 / every.precision
            inverse = np.linalg.inv(C)
            rows = np.flatnonzero(data.is_row)
            n = len(rows)
            size = int(P.get("BLOCKCV"))
            if n >= 1:
                mid = n // 2
                b = rows[max(0, mid - size // 2) : mid + size // 2 + 1]
                cov = np.linalg.inv(inverse[np.ix_(b, b)])
                e = cov @ (inverse[b] @ (every.t - territory.mean))
                noise = 1.0 / every.precision[b]
                self.residuals.append((e[:, 0], np.maximum(cov.diagonal() - noise, 1e-12), noise))
        self.seconds["look"] += perf_counter() - started

    # Forecasts

    def _forecast(self, number: int, territory: Territory, halo: PseudoData | None) -> bool:
        own, n_known, theta = territory.data, territory.n_known, territory.theta
        rest = own[:n_known] if halo is None else PseudoData.union(own[:n_known], halo)
        new = own[n_known:]
        mean, cov = Posterior(territory.kernel, theta, territory.mean, rest).joint(new.Z)
        error = new.t - mean
        field_variance = cov.diagonal().copy()
        noise = 1.0 / new.precision
        cov[np.diag_indices_from(cov)] += noise
        L = np.linalg.cholesky(cov)
        z = np.linalg.solve(L, error)
        density = -0.5 * float((z * z).sum()) - error.shape[1] * float(np.log(L.diagonal()).sum() + 0.5 * len(error) * np.log(2 * np.pi))
        if not P.get("BLOCKCV"):
            self.residuals.append((error[:, 0], field_variance, noise))
        self.densities.append(density / error.size)
        self.zs = getattr(self, "zs", []) + [z[:, 0]]
        self.ratio = getattr(self, "ratio", []) + [np.stack([L.diagonal() ** 2 - noise, noise, field_variance], 1)]
        inverse = np.linalg.inv(cov)
        loo = (inverse @ error) / np.sqrt(inverse.diagonal())[:, None]
        size = np.sqrt((loo**2).mean(axis=1))
        gate = np.minimum(1.0, (GATE / np.maximum(size, 1e-300)) ** 4)
        if (gate < 1.0).any():
            self.stats["gated"] = self.stats.get("gated", 0) + int((gate < 1).sum())
            precision = own.precision.copy()
            precision[n_known:] *= gate
            own = replace(own, precision=precision)
            self._put(replace(territory, data=own), number)
        chi2 = float((z * z).sum())
        self.stats["forecasts"] = self.stats.get("forecasts", 0) + 1
        surprise = chi2 > z.size + P.get("SURPRISE", 4.0) * np.sqrt(2.0 * z.size)
        self.stats["surprised"] = self.stats.get("surprised", 0) + int(surprise)
        return bool(surprise)

    def _other_regime(self, number: int, territory: Territory, updated: Territory, halo: PseudoData | None) -> bool:
        own, n_known, kernel = territory.data, territory.n_known, territory.kernel
        Z, new = own.Z[:n_known], own[n_known:]
        n = len(new)
        if n < 20:
            return False
        found = None
        for axis in range(Z.shape[1]):
            for sign in (1.0, -1.0):
                a, b = sign * Z[:, axis], sign * new.Z[:, axis]
                overlap = (b <= a.max()).mean()
                if overlap < 0.05 and (found is None or overlap < found[0]):
                    found = overlap, axis, sign
        if found is None:
            return False
        _, axis, sign = found
        self.stats["separable"] = self.stats.get("separable", 0) + 1
        order = np.argsort(sign * new.Z[:, axis], kind="stable")
        def known(t: Territory) -> PseudoData:
            return t.data[:n_known] if halo is None else PseudoData.union(t.data[:n_known], halo)

        def full(t: Territory) -> PseudoData:
            return t.data if halo is None else PseudoData.union(t.data, halo)

        def evidence_of(data: PseudoData, t: Territory) -> float:
            e = Evidence(kernel, data.Z, data.t - t.mean, 1.0 / data.precision, np.zeros(len(data), dtype=np.bool_))
            return e.value_and_gradient(t.theta)[0]

        as_update = evidence_of(full(updated), updated) - evidence_of(known(territory), territory)
        # densities of the first k rows along the axis, given what is known
        ordered = territory.data[n_known:][order]
        mean, C = Posterior(kernel, territory.theta, territory.mean, known(territory)).joint(ordered.Z)
        C[np.diag_indices_from(C)] += 1.0 / ordered.precision
        Lo = np.linalg.cholesky(C)
        zo = np.linalg.solve(Lo, ordered.t - mean)
        steps = -0.5 * (zo * zo).sum(axis=1) - zo.shape[1] * (np.log(Lo.diagonal()) + 0.5 * np.log(2 * np.pi))
        before = np.concatenate([[0.0], np.cumsum(steps)])
        best = None
        p = len(territory.theta.to_vector())
        for k in (0, n // 4, n // 2, 3 * n // 4):
            rows = new[order[k:]]
            if len(rows) < 15:
                continue
            mean = rows.t.mean(axis=0)
            scales = Scales.of(rows.Z, rows.t, mean)
            variance = 1.0 / (rows.precision * territory.theta.noise**2)
            evidence = Evidence(kernel, rows.Z, rows.t - mean, variance, np.ones(len(rows), dtype=np.bool_))
            prior = HyperPrior.around(kernel, scales, default_hyperparameters(kernel, scales), 0.7)
            price = 0.5 * (p + 1) * np.log1p(len(rows))
            target = as_update - before[k] + price
            tries = [territory.theta]
            for f in (0.15, 0.5, 2.0):
                th = default_hyperparameters(kernel, scales, f)
                tries += [th, replace(th, noise=th.noise / 3)]
            values = []
            for th in tries:
                try:
                    values.append(evidence.value_and_gradient(prior.clip(th))[0])
                except NotFactorizableError:
                    values.append(-np.inf)
            if max(values) + 0.15 * len(rows) < target:
                continue
            d = Z.shape[1]

            def objective(log_theta: Array) -> tuple[float, Array]:
                value, gradient = evidence.value_and_gradient(Hyperparameters.from_log(log_theta, d))
                log_prior, by = prior.log_density(log_theta)
                return value + log_prior, gradient + by

            self.stats["worldtry"] = self.stats.get("worldtry", 0) + 1
            start = prior.clip(tries[int(np.argmax(values))])
            fitted = maximize_lbfgs(objective, start.to_log(), prior.box, np.full(p, 0.06), 20)
            value = objective(fitted)[0] - prior.log_density(fitted)[0]
            gain = value - target
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, k, Hyperparameters.from_log(fitted, d), mean
        if best is None:
            return False
        gain, k, theta, mean = best
        at = float(new.Z[order[k], axis])
        edge = float((sign * np.concatenate([Z[:, axis], new.Z[order[:k], axis]])).max()) * sign
        position = 0.5 * (at + edge)
        left = own.Z[:, axis] <= position
        is_new = ~left if sign > 0 else left
        self.stats["worlds"] = self.stats.get("worlds", 0) + 1
        if P.get("VERBOSE"):
            print("another regime", number, "n", n, "k", k, "gain", round(gain, 1), "at", position, np.round(theta.to_vector(), 3), "old", np.round(territory.theta.to_vector(), 3))
        numbers = (number, len(self.territories)) if sign > 0 else (len(self.territories), number)
        self.cuts = divided(self.cuts, Z[0], axis, position, numbers)
        share = float(is_new.mean())
        self._put(replace(territory, data=own[~is_new], n_seen=territory.n_seen - is_new.sum(), n_fitted=territory.n_fitted, n_known=int((~is_new[:n_known]).sum())), number)
        data = own[is_new].with_noise(territory.theta.noise, theta.noise)
        self._put(Territory(kernel, data, theta, mean, float(len(data)), float(len(data)), len(data)), None)
        return True

    def agreeing(self, number: int, near: Indices) -> Indices:
        return near[agreement(self.log_thetas[near] - self.log_thetas[number]) > 0.5]

    # Room

    def _make_room(self, number: int) -> None:
        started = perf_counter()
        territory = self.territories[number]
        n_new = max(1, int(territory.data.is_row.sum()))
        self.stats["tried"] += 1
        thinned = thin(
            territory.kernel, territory.theta, territory.mean, territory.data, int(P.get("MOST", 0.5) * self.settings.capacity), P.get("LOSS", 0.01), P.get("PRICE", 0.02)
        )
        self.seconds["thin"] += perf_counter() - started
        if thinned is not None:
            self.stats["thinned"] += 1
            self._put(replace(territory, data=thinned.data, n_known=len(thinned.data)), number)
            return
        Z = territory.data.Z
        axis = int(np.argmax(np.ptp(Z, axis=0) / territory.theta.lengthscales))
        at = float(np.median(Z[:, axis]))
        left = Z[:, axis] <= at
        if left.all():
            return
        self.stats["divided"] += 1
        self.cuts = divided(self.cuts, Z[0], axis, at, (number, len(self.territories)))
        for part, target in ((left, number), (~left, None)):
            share = float(part.mean())
            data = territory.data[part]
            mean = np.average(data.t, axis=0, weights=data.precision)
            self._put(
                replace(territory, data=data, mean=mean, n_seen=territory.n_seen * share, n_fitted=territory.n_fitted * share, n_known=int(part[: territory.n_known].sum())), target
            )


def predict(learning: Learning, X: Array, n_near: int | None = None, n_theta: int = 8) -> tuple[Array, Array, Array]:
    """Mean (n, k), variance of the field (n,), variance of the noise (n,)."""
    from scipy.spatial import cKDTree

    d = X.shape[1]
    M = n_near or int(P.get("NEAR", 32 if d < 4 else 128))
    T = learning.territories
    TH, MEAN = learning.log_thetas, np.array([t.mean for t in T])
    scale = np.exp(np.median(TH[:, 1 : 1 + d], axis=0))
    Z = np.concatenate([t.data.Z for t in T])
    tt = np.concatenate([t.data.t for t in T])
    lam = np.concatenate([t.data.precision for t in T])
    of = np.repeat(np.arange(len(T)), [len(t.data) for t in T])
    tree = cKDTree(Z / scale)
    n_theta = min(int(P.get("NTHETA", n_theta)), len(T))
    centres = cKDTree(learning.centres / scale)
    M = min(M, len(Z) - 1)
    kernel = learning.settings.kernel
    out, var, noise = np.empty((len(X), tt.shape[1])), np.empty(len(X)), np.empty(len(X))
    step = max(16, 2_000_000 // (M * M))
    for q0 in range(0, len(X), step):
        x = X[q0 : q0 + step]
        D, I = tree.query(x / scale, k=M + 1)
        Dc, Ic = centres.query(x / scale, k=min(n_theta + 1, len(T)))
        if len(T) == 1:
            Dc, Ic = Dc[:, None], Ic[:, None]
        if Dc.shape[1] > n_theta:
            R = Dc[:, -1:]
            w = np.maximum(1 - Dc[:, :-1] / (R + 1e-12), 0) ** 2 + 1e-12
            Ic = Ic[:, :-1]
        else:
            w = np.maximum(1 - Dc / (1.1 * Dc[:, -1:] + 1e-12), 0) ** 2 + 1e-12
        own = route(learning.cuts, x)
        w *= agreement(TH[Ic] - TH[own][:, None])
        w += 1e-12 * (Ic == own[:, None])
        alone = w.sum(axis=1) < 1e-11
        w[alone], Ic[alone] = 0.0, own[alone, None]
        w[alone, 0] = 1.0
        w /= w.sum(axis=1, keepdims=True)
        th = np.einsum("qj,qjp->qp", w, TH[Ic])
        mu = np.einsum("qj,qjk->qk", w, MEAN[Ic])
        R, R0 = D[:, -1:], D[:, [int(0.75 * M)]]
        taper = np.clip((R - D) / np.maximum(R - R0, 1e-12), 0, 1)[:, :M]
        I = I[:, :M]
        l = lam[I] * taper * agreement(TH[of[I]] - TH[own][:, None])
        s = np.sqrt(l)
        A = Z[I] / np.exp(th[:, 1 : 1 + d])[:, None]
        a = x / np.exp(th[:, 1 : 1 + d])
        a2 = np.einsum("qij,qij->qi", A, A)
        S = np.maximum(a2[:, :, None] + a2[:, None] - 2 * A @ A.transpose(0, 2, 1), 0)
        al, sf2 = np.exp(th[:, 1 + d]), np.exp(2 * th[:, 0])
        K = sf2[:, None, None] * np.exp(-al[:, None, None] * np.log1p(S / (2 * al[:, None, None])))
        k = sf2[:, None] * np.exp(-al[:, None] * np.log1p(((A - a[:, None]) ** 2).sum(-1) / (2 * al[:, None])))
        c2 = P.get("KAPPA", 0.0) * sf2
        K = K + c2[:, None, None]
        k = k + c2[:, None]
        B = s[:, :, None] * K * s[:, None]
        j = np.arange(M)
        B[:, j, j] += 1
        rhs = np.concatenate([(s * k)[:, :, None], s[:, :, None] * (tt[I] - mu[:, None])], axis=-1)
        W = np.linalg.solve(B, rhs)
        out[q0 : q0 + step] = mu + np.einsum("qm,qmk->qk", s * k, W[..., 1:])
        var[q0 : q0 + step] = np.maximum(sf2 + c2 - (s * k * W[..., 0]).sum(1), 0)
        noise[q0 : q0 + step] = np.exp(2 * th[:, -1])
    return out, var, noise


def predict_cells(learning: Learning, X: Array, n_halo: int, smooth: float = 0.5) -> tuple[Array, Array, Array]:
    owners = route(learning.cuts, X)
    k = learning.territories[0].mean.shape[0]
    out, var, noise = np.empty((len(X), k)), np.empty(len(X)), np.empty(len(X))
    d = X.shape[1]
    for number in np.unique(owners).tolist():
        rows = owners == number
        T = learning.territories[number]
        near = learning.neighbours(number) if len(learning.territories) > 1 else np.empty(0, dtype=np.intp)
        data = T.data
        log_theta = T.theta.to_log()
        if len(near) and n_halo:
            around = PseudoData.union(*(learning.territories[o].data for o in near.tolist()))
            Z = data.Z
            gap = np.maximum(np.maximum(Z.min(axis=0) - around.Z, around.Z - Z.max(axis=0)), 0.0) / T.theta.lengthscales
            gap = np.einsum("ij,ij->i", gap, gap)
            if len(gap) > n_halo:
                around = around[np.argpartition(gap, n_halo - 1)[:n_halo]]
            data = PseudoData.union(data, around)
            log_theta = (1 - smooth) * log_theta + smooth * learning.log_thetas[near].mean(axis=0)
        theta = Hyperparameters.from_log(log_theta, d)
        post = Posterior(T.kernel, theta, T.mean, data)
        out[rows], var[rows] = post.predict(X[rows])
        noise[rows] = theta.noise**2
    return out, var, noise
