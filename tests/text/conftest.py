"""Being here puts this folder on the path: tests in subfolders import the plain twins from it."""
