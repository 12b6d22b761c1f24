"""Around the simulation: setups in files, figures, expectations, pictures."""
