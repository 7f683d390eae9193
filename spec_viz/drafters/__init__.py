"""Whatever proposes tokens: one file a family, each registered by name."""
