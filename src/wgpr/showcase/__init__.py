"""The demo: a survey, a race, and the report about it."""
