"""Servers of other people's making: asked, timed and read."""
