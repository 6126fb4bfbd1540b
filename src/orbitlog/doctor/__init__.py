"""What is wrong with a store, and how it is mended: check, rebuild, repair; as tasks, run here or elsewhere."""
