"""The parts of the pipeline's benchmark, one module each."""
