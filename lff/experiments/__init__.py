"""Many experiments: what one is, how it runs, is recorded, resumed and swept."""
