"""The lab measures and predicts: runs, formulas, statistics, the losslessness tests, benchmarks."""
