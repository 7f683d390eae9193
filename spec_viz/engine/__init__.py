"""The engine decodes; it knows no drafter by name, no page and no chart."""
