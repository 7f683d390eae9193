"""What the prompts ask for, a module a task: templates and word lists of our own, nothing copied from anywhere.

Each module offers `write(pen)`, which makes up one prompt.
"""
