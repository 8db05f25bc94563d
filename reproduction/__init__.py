"""The paper, reproduced: its figures and tables, beside the published numbers, and the studies that it left open."""
