"""What is wrong with a store, and how it is mended: check, rebuild, repair; runs in this process or as tasks elsewhere."""
