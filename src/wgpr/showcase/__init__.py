"""The demo: a race over a survey, and the story that its report tells."""
