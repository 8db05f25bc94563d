"""The figures and tables of the paper, computed again, and further studies: `python -m reproduction --data FOLDER`."""
