"""The study: the paper's numbers, tables, figures, claims, notebooks and the report."""
