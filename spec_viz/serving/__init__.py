"""Servers of other people's making: asked, timed and read."""

# How a server of ours drafts; a saved run has one of these names.
METHODS = ("baseline", "ngram", "draft_model", "eagle3")
