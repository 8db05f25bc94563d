"""Rules that a method is made of: splitting, prediction, calibration."""
