"""One file for each family of models, named in `models.table`."""
