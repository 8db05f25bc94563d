"""Gaussian processes on plain arrays: kernels, bounds, hyperparameters, local models and their learners."""
