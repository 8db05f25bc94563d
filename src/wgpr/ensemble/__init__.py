"""The ensemble of local models and the step of the algorithm."""
